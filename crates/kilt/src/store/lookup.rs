//! Pages by id and by title.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::{ID_ROW, OWN_TITLE, PageIndex, PassageStore, TITLE_ROW, other_path, u16_at, u64_at};

/// The normalised form of a title for tolerant look-ups: NFC, underscores as blanks, single blanks, lower
/// case.
pub fn normalize_title(title: &str) -> String {
    let mut normal = String::with_capacity(title.len());
    for word in title.split(|c: char| c.is_whitespace() || c == '_').filter(|word| !word.is_empty()) {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.extend(word.nfc().flat_map(char::to_lowercase));
    }
    normal
}

/// The hash that id and title rows are sorted by.
pub(super) fn key(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    u64_at(hash.as_bytes(), 0)
}

/// The first of `rows` sorted rows of `width` bytes whose leading u64 is at least `key`.
fn lower_bound(bytes: &[u8], width: usize, key: u64) -> usize {
    let (mut low, mut high) = (0, bytes.len() / width);
    while low < high {
        let middle = low + (high - low) / 2;
        if u64_at(bytes, middle * width) < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// The rows whose leading u64 is `key`.
fn rows(bytes: &[u8], width: usize, key: u64) -> impl Iterator<Item = &[u8]> {
    bytes[lower_bound(bytes, width, key) * width..]
        .chunks_exact(width)
        .take_while(move |row| u64_at(row, 0) == key)
}

impl PassageStore {
    /// The page with that id (compared trimmed), as it is stored or as [`page_id`](Self::page_id) gives it.
    pub fn page_by_id(&self, id: &str) -> Option<PageIndex> {
        let id = id.trim();
        let by_source =
            |(stored, shown): &(String, String)| self.page_by_stored_id(&other_path(id, shown, stored)?);
        self.page_by_stored_id(id).or_else(|| self.sources.iter().find_map(by_source))
    }

    fn page_by_stored_id(&self, id: &str) -> Option<PageIndex> {
        rows(&self.ids, ID_ROW, key(id))
            .map(|row| self.page_at(row, 8, "ids.bin"))
            .find(|&page| self.stored_id(page) == id)
    }

    /// The page with that title: the exact title first, then an exact redirect, then titles and redirects
    /// with equal [`normalize_title`]. Ties go to the first page of the source. No page is found by an empty title.
    pub fn page_by_title(&self, title: &str) -> Option<PageIndex> {
        let title = title.trim();
        if title.is_empty() {
            return None;
        }
        let normal = normalize_title(title);
        let mut best: Option<(u8, PageIndex)> = None;
        for row in rows(&self.titles, TITLE_ROW, key(&normal)) {
            let page = self.page_at(row, 8, "titles.bin");
            let redirect = u64_at(row, 12);
            let name = match redirect {
                OWN_TITLE => self.page_title(page),
                start => self.name(start, u16_at(row, 20)),
            };
            let rank = match (name.trim() == title, redirect == OWN_TITLE) {
                _ if name.trim().is_empty() => continue,
                (true, true) => 0,
                (true, false) => 1,
                (false, _) if normalize_title(name) != normal => continue,
                (false, true) => 2,
                (false, false) => 3,
            };
            if best.is_none_or(|best| (rank, page) < best) {
                best = Some((rank, page));
            }
        }
        best.map(|(_, page)| page)
    }

    /// The page with exactly that title, ignoring outer white space. Redirects and other spellings do not
    /// count. Ties go to the first page of the source. No page is found by an empty title.
    pub fn page_of_title(&self, title: &str) -> Option<PageIndex> {
        let title = title.trim();
        if title.is_empty() {
            return None;
        }
        rows(&self.titles, TITLE_ROW, key(&normalize_title(title)))
            .filter(|row| u64_at(row, 12) == OWN_TITLE)
            .map(|row| self.page_at(row, 8, "titles.bin"))
            .filter(|&page| self.page_title(page).trim() == title)
            .min()
    }

    /// Every title and redirect with its page, in unspecified order; `true` for redirects. Pages without a title are left
    /// out.
    pub fn names_of_pages(&self) -> impl Iterator<Item = (PageIndex, &str, bool)> {
        let names = self.titles.chunks_exact(TITLE_ROW).map(|row| {
            let page = self.page_at(row, 8, "titles.bin");
            match u64_at(row, 12) {
                OWN_TITLE => (page, self.page_title(page), false),
                start => (page, self.name(start, u16_at(row, 20)), true),
            }
        });
        names.filter(|(_, name, _)| !name.trim().is_empty())
    }

    /// The page of an anchor's `href`: a title, percent-encoded as in KILT's files. A section after `#` does not count.
    pub fn page_by_href(&self, href: &str) -> Option<PageIndex> {
        self.page_by_title(&title_of_href(href))
    }
}

/// The title in an anchor's `href`, decoded and without a section. No title has a `#`.
pub(crate) fn title_of_href(href: &str) -> Cow<'_, str> {
    match percent_decoded(href) {
        Cow::Borrowed(text) => Cow::Borrowed(text.split('#').next().unwrap_or_default()),
        Cow::Owned(mut text) => {
            text.truncate(text.find('#').unwrap_or(text.len()));
            Cow::Owned(text)
        }
    }
}

/// The text with its percent codes decoded; unchanged if they are no UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8)
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_no_part_of_a_title() {
        for href in ["Italy", "Italy#History", "Italy%23History"] {
            assert_eq!(title_of_href(href), "Italy");
        }
        assert_eq!(title_of_href("#History"), "");
    }

    #[test]
    fn titles_are_normalised_for_case_blanks_and_composition() {
        assert_eq!(normalize_title("  The_Beatles  "), "the beatles");
        // e + combining acute is the composed letter.
        assert_eq!(normalize_title("Cafe\u{301}"), normalize_title("Café"));
    }

    #[test]
    fn hrefs_are_decoded() {
        assert_eq!(percent_decoded("Caf%C3%A9%20%28film%29"), "Café (film)");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz"), "%zz");
    }
}
