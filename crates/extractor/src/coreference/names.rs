//! Whether two names can refer to the same entity.

use crate::demonyms::country;
use crate::{Document, EntityType, Mention};

/// A name's lower-case words, without those that do not identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    words: Vec<String>,
    /// The initials of its capitalised words, and the name itself if it is in capitals.
    initials: String,
    acronym: Option<String>,
    title: Option<String>,
}

const TITLES: [&str; 26] = [
    "captain",
    "col.",
    "dame",
    "dr",
    "dr.",
    "duke",
    "general",
    "judge",
    "justice",
    "king",
    "lady",
    "lord",
    "miss",
    "mr",
    "mr.",
    "mrs",
    "mrs.",
    "ms",
    "ms.",
    "president",
    "prince",
    "princess",
    "prof.",
    "professor",
    "queen",
    "sir",
];
const PERSON_ENDINGS: [&str; 8] = ["ii", "iii", "iv", "jr", "jr.", "phd", "sr", "sr."];
const FIRM_ENDINGS: [&str; 17] = [
    "ag",
    "co",
    "co.",
    "company",
    "corp",
    "corp.",
    "corporation",
    "gmbh",
    "group",
    "inc",
    "inc.",
    "incorporated",
    "limited",
    "llc",
    "ltd",
    "ltd.",
    "plc",
];
/// First words that many organisations share.
const COMMON: [&str; 24] = [
    "american",
    "bank",
    "british",
    "central",
    "college",
    "department",
    "european",
    "first",
    "institute",
    "international",
    "ministry",
    "national",
    "new",
    "north",
    "royal",
    "saint",
    "south",
    "st.",
    "state",
    "the",
    "union",
    "united",
    "university",
    "world",
];

impl Name {
    pub(super) fn of(document: &Document, mention: &Mention) -> Self {
        let words = mention.tokens.clone().map(|at| document.word(at));
        let mut title = None;
        let mut kept: Vec<String> = Vec::new();
        let mut initials = String::new();
        for word in words {
            if !word.chars().any(char::is_alphanumeric) || matches!(word, "'s" | "’s") {
                continue;
            }
            let lower = word.to_lowercase();
            if kept.is_empty() && lower == "the" {
                continue;
            }
            if mention.kind == EntityType::Person && kept.is_empty() && TITLES.binary_search(&&*lower).is_ok()
            {
                title = Some(lower);
                continue;
            }
            if let Some(first) = word.chars().next().filter(|first| first.is_uppercase()) {
                initials.push(first);
            }
            kept.push(lower);
        }
        let endings: &[&str] = match mention.kind {
            EntityType::Person => &PERSON_ENDINGS,
            EntityType::Organisation => &FIRM_ENDINGS,
            _ => &[],
        };
        while kept.len() > 1 && kept.last().is_some_and(|last| endings.binary_search(&&**last).is_ok()) {
            kept.pop();
        }
        if let (EntityType::Location, [word]) = (mention.kind, kept.as_slice())
            && let Some(country) = country(word)
        {
            kept = country.split(' ').map(str::to_owned).collect();
        }
        let text: String = mention.tokens.clone().map(|at| document.word(at)).collect();
        let plain: String = text.chars().filter(|character| *character != '.').collect();
        let is_acronym = (2..=6).contains(&plain.chars().count()) && plain.chars().all(char::is_uppercase);
        Self { words: kept, initials, acronym: is_acronym.then_some(plain), title }
    }

    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

    /// The keys that agreeing names share: a word, or initials with an acronym.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let letters = |letters: &str| format!("={letters}");
        let initials = (self.words.len() > 1).then(|| letters(&self.initials));
        self.words.iter().cloned().chain(initials).chain(self.acronym.as_deref().map(letters))
    }

    /// A title such as `mrs.`, or the first word.
    pub(super) fn gendered(&self) -> Option<&str> {
        self.title.as_deref().or_else(|| self.words.first().map(String::as_str))
    }

    /// The confidence that this later name refers to the same entity as `earlier`; 0 without evidence.
    pub(super) fn agrees(&self, earlier: &Self, kind: EntityType) -> f32 {
        if self.words.is_empty() || earlier.words.is_empty() {
            return 0.0;
        }
        if self.words == earlier.words {
            return 0.98;
        }
        match kind {
            EntityType::Person => self.agrees_as_person(earlier),
            EntityType::Organisation | EntityType::Other => self.agrees_as_organisation(earlier),
            EntityType::Location => acronym(self, earlier),
            EntityType::Date => 0.0,
        }
    }

    fn agrees_as_person(&self, earlier: &Self) -> f32 {
        let (shorter, longer) =
            if self.words.len() <= earlier.words.len() { (self, earlier) } else { (earlier, self) };
        let last = |name: &Self| name.words[name.words.len() - 1].clone();
        if let [word] = shorter.words.as_slice() {
            if *word == last(longer) {
                return 0.93;
            }
            return if *word == longer.words[0] {
                0.88
            } else if longer.words.contains(word) {
                0.75
            } else {
                0.0
            };
        }
        let (first, second) = (&shorter.words[0], &longer.words[0]);
        let begins = |initial: &str, word: &str| {
            initial.trim_end_matches('.').chars().count() == 1
                && word.starts_with(initial.trim_end_matches('.'))
        };
        let firsts = first == second || begins(first, second) || begins(second, first);
        if last(shorter) == last(longer) && firsts {
            return 0.95;
        }
        // `Ludwig van` in `Ludwig van Beethoven`
        let within = shorter.words.iter().all(|word| longer.words.contains(word));
        if within { 0.85 } else { 0.0 }
    }

    fn agrees_as_organisation(&self, earlier: &Self) -> f32 {
        let by_acronym = acronym(self, earlier);
        if by_acronym > 0.0 {
            return by_acronym;
        }
        // A longer name after a shorter one is usually another entity: `Google`, then `Google Ventures`.
        let begins = self.words.len() < earlier.words.len() && earlier.words.starts_with(&self.words);
        let is_own = COMMON.binary_search(&&*self.words[0]).is_err() && self.words[0].chars().count() > 2;
        if begins && (is_own || self.words.len() > 1) { 0.75 } else { 0.0 }
    }
}

fn acronym(a: &Name, b: &Name) -> f32 {
    let is = |short: &Name, long: &Name| {
        long.words.len() > 1 && short.acronym.as_ref().is_some_and(|letters| *letters == long.initials)
    };
    if is(a, b) || is(b, a) { 0.93 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MentionForm;

    fn name(text: &str, kind: EntityType) -> Name {
        let document = Document::new("d", text);
        let tokens = 0..document.tokens.len();
        let span = document.span(tokens.clone());
        Name::of(
            &document,
            &Mention { span, tokens, sentence: 0, kind, form: MentionForm::Name, confidence: 1.0 },
        )
    }

    fn agree(kind: EntityType, later: &str, earlier: &str) -> bool {
        name(later, kind).agrees(&name(earlier, kind), kind) > 0.0
    }

    #[test]
    fn persons_agree_by_surnames_first_names_and_initials() {
        let person = |later, earlier| agree(EntityType::Person, later, earlier);
        assert!(person("Smith", "John Smith") && person("Mr. Smith", "John Smith Jr."));
        assert!(person("J. Smith", "John Smith") && person("John Q. Smith", "John Smith"));
        assert!(person("John", "John Smith") && person("John Smith's", "John Smith"));
        assert!(!person("Jane Smith", "John Smith") && !person("John Jones", "John Smith"));
    }

    #[test]
    fn organisations_agree_by_their_endings_and_their_initials() {
        let firm = |later, earlier| agree(EntityType::Organisation, later, earlier);
        assert!(firm("Acme", "Acme Inc.") && firm("Acme Corporation", "Acme Inc."));
        assert!(firm("MIT", "Massachusetts Institute of Technology") && firm("Roamware", "Roamware Systems"));
        assert!(!firm("Google Ventures", "Google") && !firm("National", "National Bank"));
        assert!(!firm("Raymond James Financial", "Raymond James Bank"));
        assert!(agree(EntityType::Location, "U.S.", "the United States"));
        assert!(
            agree(EntityType::Location, "French", "France")
                && !agree(EntityType::Location, "French", "Spain")
        );
    }

    #[test]
    fn lists_are_in_the_order_that_they_are_searched_in() {
        assert!(
            TITLES.is_sorted()
                && PERSON_ENDINGS.is_sorted()
                && FIRM_ENDINGS.is_sorted()
                && COMMON.is_sorted()
        );
    }
}
