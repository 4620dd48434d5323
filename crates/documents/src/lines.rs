//! The lines of a text.

/// The smallest length of the longest line of a paragraph that was wrapped, in characters.
const WIDTH: usize = 40;
/// The separator of the cells of a row.
const CELLS: &str = " | ";

/// Whether lines are one paragraph that was wrapped at some width, instead of lines that each stand alone, such as those of
/// code, of a table, of a list or of a log.
///
/// At most breaks of a paragraph, the line has no room for the next word, or the next line goes on in lower case. A line
/// that is indented or begins with a sign, a digit or a name with a colon stands alone, and so do rows and code.
///
/// ```
/// use sporran_documents::is_wrapped;
///
/// assert!(is_wrapped(&["A sentence that", "goes on."]));
/// assert!(!is_wrapped(&["Name: Ann", "City: Oslo"]));
/// ```
#[must_use]
pub fn is_wrapped(lines: &[&str]) -> bool {
    let length = |text: &str| text.trim_end().chars().count();
    let width = lines.iter().map(|line| length(line)).max().unwrap_or_default();
    let has_sentences = lines.iter().any(|line| line.trim_end().ends_with(['.', '!', '?']));
    let is_free = |pair: &&[&str]| {
        let word = pair[1].split_whitespace().next().unwrap_or_default();
        let has_room = width < WIDTH || length(pair[0]) + 1 + length(word) <= width;
        let goes_on = has_sentences && word.starts_with(char::is_lowercase);
        begins_anew(pair[1]) || pair.iter().any(|line| is_row_or_code(line)) || (has_room && !goes_on)
    };
    let free = lines.windows(2).filter(is_free).count();
    lines.len() < 2 || (free * 2 < lines.len() - 1 && !begin_alike(lines))
}

/// Whether most of at least four lines begin with the same word, as entries of one form do and lines of prose do not.
fn begin_alike(lines: &[&str]) -> bool {
    let mut firsts: Vec<Option<&str>> = lines.iter().map(|line| line.split_whitespace().next()).collect();
    firsts.sort_unstable();
    // More than half are equal only if the middle one of the sorted words is one of them.
    let middle = firsts[firsts.len() / 2];
    lines.len() >= 4 && firsts.iter().filter(|word| **word == middle).count() * 2 > lines.len()
}

/// Whether a line looks like one that stands alone: it is indented, or begins with a sign, a digit or `name:`.
fn begins_anew(line: &str) -> bool {
    let is_indented = line.starts_with(['\t']) || line.starts_with("  ");
    let first = line.trim_start().chars().next();
    let is_sign =
        first.is_some_and(|c| !c.is_alphabetic() && !matches!(c, '"' | '\'' | '(' | '“' | '‘' | '«' | '„'));
    let word = line.split_whitespace().next().unwrap_or_default();
    is_indented || is_sign || word.ends_with(':')
}

/// Whether a line has cells, or the signs of code.
fn is_row_or_code(line: &str) -> bool {
    line.contains(CELLS) || line.contains(" = ") || line.trim_end().ends_with(['{', '}', ';', '='])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_lists_code_and_logs_are_lines() {
        let prose = "The water of the well is tested once a month, in the first week, by the\n\
                     district. Mrs Berg takes the sample herself and brings it to the laboratory\n\
                     in Kelso. The results hang on the board next to the door of the town hall,\n\
                     and the last ten years of them are in the archive.";
        let wrapped = |text: &str| is_wrapped(&text.lines().collect::<Vec<_>>());
        assert!(wrapped(prose) && wrapped("one line") && wrapped(""));
        // A line that was edited and not wrapped again.
        assert!(wrapped(&prose.replace(", by the\n", "\n")));
        for lines in [
            "Boiler: Vaillant, serviced in May 2021 by Holm & Sons\nRoof: slate\nWindows: oak, painted white",
            "2024-01-02 start of the pump in the northern house\n2024-01-03 stop\n2024-01-04 start",
            "- milk\n- bread\n- the large yellow cheese from the market on Saturday",
            "PORT = 8080\nHOST = \"localhost\"\nTIMEOUT_IN_SECONDS_OF_THE_SLOW_ROUTES = 30",
            "item | cost\nroof | 4000\nwindows | 2500",
            "def boiler(temp):\n    limit = 80\n    return temp < limit",
            "milk\nbread\ncheese",
            "id: 2\nname: Bob Ray\nrole: plumber",
            "2024-01-02 08:00 pump started in the northern house\n2024-01-03 09:00 pump stopped because of ice\n\
             2024-01-04 10:00 Mr Holm repaired the valve",
            "The 170th guest is Ann and her room is Room70 on the floor above\n\
             The 171st guest is Bob and his room is Room71 on the floor above\n\
             The 172nd guest is Eve and her room is Room72 on the floor above\n\
             The 173rd guest is Ned and his room is Room73 on the floor above",
            "def f1970(x): return x + 1970  # token1970\ndef f1971(x): return x + 1971  # token1971\n\
             def f1972(x): return x + 1972  # token1972\ndef f1973(x): return x + 1973  # token1973",
        ] {
            assert!(!wrapped(lines), "{lines}");
        }
    }
}
