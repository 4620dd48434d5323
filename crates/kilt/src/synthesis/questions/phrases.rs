//! Phrases at the start of a list of words: times, durations, frequencies, amounts and places. A word may end with a comma, which
//! ends its phrase.

const MONTHS: &str = "January February March April May June July August September October November December";
const WEEKDAYS: &str = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday";
const SEASONS: &str = "spring summer autumn fall winter Spring Summer";
/// Parts of a span of time, before `of`.
const PARTS: &str = "beginning start middle end week weeks half day days month months morning evening part weekend \
    quarter";
/// Units of time.
const SPANS: &str = "second minute hour day night week fortnight month season year decade century";
/// Units of amounts.
const UNITS: &str = "kg g mg t l ml cl kilograms kilogrammes grams grammes tonnes tons pounds ounces litres liters \
    millilitres gallons pints cups metres meters centimetres kilometres kilometers millimetres \
    miles feet inches yards km m cm mm hectares acres GB";
/// Nouns after a number that count no things.
const SHARES: &str = "thirds quarters halves times percent percentages fifths";
/// Adjectives after an amount and a unit.
const DIMENSIONS: &str = "high long wide deep tall old thick heavy away apart";
const NUMBERS: &str = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen \
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety both";
const POWERS: &str = "hundred thousand million billion";
/// Words before a number that say how exact it is.
const ROUGH: &str = "about around approximately nearly almost exactly over roughly only";
const ROUGH_PAIRS: [[&str; 2]; 6] =
    [["at", "least"], ["at", "most"], ["more", "than"], ["less", "than"], ["fewer", "than"], ["up", "to"]];
/// Words that end a noun phrase or may follow a complete phrase.
const FUNCTION: [&str; 56] = [
    "a", "an", "the", "of", "in", "on", "at", "by", "for", "from", "to", "with", "without", "and", "or",
    "but", "as", "than", "after", "before", "when", "while", "if", "because", "who", "which", "that",
    "where", "into", "over", "under", "near", "between", "during", "through", "until", "since", "against",
    "per", "each", "every", "is", "are", "was", "were", "has", "have", "had", "so", "behind", "off", "out",
    "up", "down", "away", "back",
];
/// Prepositions of places.
const WHERE: &str = "in on at near behind under beside above below opposite inside outside between along";
/// Nouns of prepositional phrases that are no places.
const NO_PLACES: &str = "beginning start middle end form process case cases hands hand same market order list top way \
    time times past future present rise verge basis condition conditions style genre role league \
    team season seasons competition championship championships tournament game games match final \
    year years week day days night morning evening afternoon month century age name number amount \
    event lead family genus series category";

/// Whether a list of words has a word.
fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// A word without its comma.
pub(super) fn bare(word: &str) -> &str {
    word.trim_end_matches(',')
}

fn has_comma(word: &str) -> bool {
    word.ends_with(',')
}

fn is_year(word: &str) -> bool {
    word.len() == 4
        && word.bytes().all(|byte| byte.is_ascii_digit())
        && (word.starts_with('1') || word.starts_with("20"))
}

fn is_decade(word: &str) -> bool {
    word.strip_suffix('s').is_some_and(is_year)
}

fn is_day(word: &str) -> bool {
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    digits.parse::<u32>().is_ok_and(|day| (1..=31).contains(&day)) && word.len() - digits.len() <= 2
}

pub(super) fn is_function(word: &str) -> bool {
    FUNCTION.contains(&word)
}

/// Whether a phrase that `last` ends can be taken out before the word that follows it.
fn ends_before(last: &str, next: Option<&&str>) -> bool {
    has_comma(last) || next.is_none_or(|next| is_function(bare(next)))
}

/// The number of words of a date at the start: `3 June 1990`, `June 30, 2017`, `1990s`, `spring`, `Sundays`.
fn date(words: &[&str]) -> Option<usize> {
    let get = |at: usize| words.get(at).copied();
    let first = get(0)?;
    let is_month = |word: Option<&str>| word.is_some_and(|word| has(MONTHS, bare(word)));
    let is_year_at = |at: usize| get(at).is_some_and(|word| is_year(bare(word)));
    if is_year(bare(first)) || is_decade(bare(first)) {
        return Some(1);
    }
    if is_month(Some(first)) {
        let length = match get(1) {
            _ if has_comma(first) => 1,
            Some(day) if is_day(bare(day)) => 2 + usize::from(is_year_at(2)),
            _ => 1 + usize::from(is_year_at(1)),
        };
        return Some(length);
    }
    if is_day(first) && is_month(get(1)) {
        return Some(2 + usize::from(!has_comma(get(1)?) && is_year_at(2)));
    }
    if has(SEASONS, bare(first)) {
        let has_year = !has_comma(first) && get(1) == Some("of") && is_year_at(2);
        return Some(if has_year { 3 } else { 1 + usize::from(!has_comma(first) && is_year_at(1)) });
    }
    let day = bare(first);
    (has(WEEKDAYS, day) || day.strip_suffix('s').is_some_and(|day| has(WEEKDAYS, day))).then_some(1)
}

/// A date with `the`, `early` or a part before it: `the last week of July`.
fn span(words: &[&str]) -> Option<usize> {
    if let Some(length) = date(words) {
        return Some(length);
    }
    match words {
        ["early" | "mid" | "late" | "about" | "around", rest @ ..] => Some(1 + date(rest)?),
        ["the", rest @ ..] => {
            if rest.first().is_some_and(|word| has(SEASONS, bare(word)) || is_decade(bare(word))) {
                return Some(1 + date(rest)?);
            }
            if let [century, "century" | "century,", ..] = rest
                && century.starts_with(|first: char| first.is_ascii_digit())
            {
                return Some(3);
            }
            let of = rest.iter().take(4).position(|word| *word == "of")?;
            let is_part = of > 0 && has(PARTS, rest[of - 1]);
            let after = &rest[of + 1..];
            let (skipped, after) = match after {
                ["the", after @ ..] => (1, after),
                _ => (0, after),
            };
            (is_part).then_some(()).and_then(|()| date(after)).map(|length| 1 + of + 1 + skipped + length)
        }
        _ => None,
    }
}

/// A time at the start, with the words that ask for it.
pub(super) fn time(words: &[&str]) -> Option<(usize, &'static str)> {
    let (first, rest) = words.split_first()?;
    let (length, asks) = match *first {
        "in" | "on" | "at" | "during" => match rest {
            [number, "am" | "am," | "pm" | "pm," | "o'clock" | "o’clock", ..]
                if *first == "at" && is_number(number) =>
            {
                (3, "At what time")
            }
            _ => (1 + span(rest)?, "When"),
        },
        "since" => (1 + span(rest)?, "Since when"),
        "until" => (1 + span(rest)?, "Until when"),
        "from" | "between" => {
            let begin = span(rest)?;
            let joins = if *first == "from" { &["to", "until", "till", "through"][..] } else { &["and"] };
            let join = rest.get(begin).filter(|word| joins.contains(word) && !has_comma(rest[begin - 1]));
            join?;
            (2 + begin + span(&rest[begin + 1..])?, "When")
        }
        _ => return None,
    };
    // Another date belongs to the phrase.
    let goes_on = matches!(words.get(length..), Some(["and" | "or", next @ ..]) if date(next).is_some());
    (ends_before(words[length - 1], words.get(length)) && !goes_on).then_some((length, asks))
}

fn is_number(word: &str) -> bool {
    let word = bare(word);
    let digits = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b',' || byte == b'.');
    (digits && word.starts_with(|first: char| first.is_ascii_digit()) && word != "1")
        || has(NUMBERS, word.to_lowercase().split('-').next().unwrap_or(word))
}

/// The number of words of a number at the start: `about 1,200`, `at least two million`.
pub(super) fn number(words: &[&str]) -> Option<usize> {
    let lower: Vec<String> = words.iter().take(2).map(|word| word.to_lowercase()).collect();
    let rough = match lower.as_slice() {
        [first, second] if ROUGH_PAIRS.contains(&[first.as_str(), second.as_str()]) => 2,
        [first, ..] if has(ROUGH, first.as_str()) => 1,
        _ => 0,
    };
    let number = words.get(rough)?;
    if has_comma(number) || !(is_number(number) || (*number == "a" && is_power(words.get(rough + 1)))) {
        return None;
    }
    let powers = words[rough + 1..].iter().take_while(|word| has(POWERS, word)).count();
    let length = rough + 1 + powers;
    match words.get(length..) {
        Some(["or" | "to", next, ..]) if is_number(next) && !has_comma(next) => Some(length + 2),
        _ => Some(length),
    }
}

fn is_power(word: Option<&&str>) -> bool {
    word.is_some_and(|word| has(POWERS, word))
}

/// A duration at the start: `for three days`.
pub(super) fn duration(words: &[&str]) -> Option<usize> {
    let ["for", rest @ ..] = words else { return None };
    let count = number(rest)?;
    let unit =
        rest.get(count).filter(|unit| bare(unit).strip_suffix('s').is_some_and(|unit| has(SPANS, unit)))?;
    ends_before(unit, rest.get(count + 1)).then_some(count + 2)
}

/// How often something happens, at the start: `every week`, `twice a month`, `three times a year`.
pub(super) fn frequency(words: &[&str]) -> Option<usize> {
    let is_span = |word: &str| has(SPANS, bare(word)) || has(WEEKDAYS, bare(word));
    let length = match words {
        ["daily" | "weekly" | "monthly" | "annually" | "yearly", ..] => 1,
        ["every" | "each", span, ..] if is_span(span) => 2,
        ["every", count, spans, ..]
            if (is_number(count) || ["few", "other", "second", "third"].contains(count))
                && (is_span(spans) || bare(spans).strip_suffix('s').is_some_and(is_span)) =>
        {
            3
        }
        ["once" | "twice", "a" | "per" | "every" | "each", span, ..] if is_span(span) => 3,
        [count, "times", "a" | "per" | "every" | "each", span, ..] if is_number(count) && is_span(span) => 4,
        _ => return None,
    };
    let last = words[length - 1];
    ends_before(last, words.get(length)).then_some(length)
}

/// A number of times at the end: `four times`.
pub(super) fn times(words: &[&str]) -> Option<usize> {
    let count = number(words)?;
    (words.len() == count + 1 && words[count] == "times").then_some(count + 1)
}

/// Whether a weight is at the start: `12 kg`, `between 7 and 12 kg`.
pub(super) fn is_weight(words: &[&str]) -> bool {
    let words = words.strip_prefix(&["between"]).unwrap_or(words);
    let count = number(words).unwrap_or(0);
    let rest = match &words[count..] {
        ["and", rest @ ..] => &rest[number(rest).unwrap_or(0)..],
        rest => rest,
    };
    count > 0 && rest.first().is_some_and(|unit| has(UNITS, bare(unit)))
}

/// An amount at the start, with the words that ask for it.
pub(super) struct Amount {
    /// The number of words of the amount with its noun.
    pub(super) length: usize,
    /// `How many hives`, `How much sugar syrup`.
    pub(super) asks: String,
}

/// An amount with its noun: `twelve hives`, `15 kg of sugar syrup`.
pub(super) fn amount(words: &[&str]) -> Option<Amount> {
    let count = number(words)?;
    let rest = &words[count..];
    let (unit, noun) = match rest {
        [unit, "of", noun @ ..] if has(UNITS, unit) => (2, noun),
        _ => (0, rest),
    };
    let length = noun_phrase(noun);
    let phrase: Vec<&str> = noun[..length].iter().map(|word| bare(word)).collect();
    let last = phrase.last()?;
    // `30 days of holiday`
    let of = match &noun[length..] {
        ["of", after @ ..] if unit == 0 && !has_comma(noun[length - 1]) => 1 + noun_phrase(after),
        _ => 0,
    };
    let whole: Vec<&str> = noun[..length + of].iter().map(|word| bare(word)).collect();
    let is_usable =
        of != 1 && phrase.len() <= 4 && !has(UNITS, phrase[0]) && phrase.iter().all(|word| is_plain(word));
    let is_time = last.strip_suffix('s').is_some_and(|span| has(SPANS, span)) || has(SHARES, last);
    let asks = match (unit, is_plural(last)) {
        (0, true) if !is_time || of > 1 => "How many",
        (2, false) => "How much",
        _ => return None,
    };
    is_usable
        .then(|| Amount { length: count + unit + length + of, asks: format!("{asks} {}", whole.join(" ")) })
}

/// A dimension: `40 metres high` gives its length and `high`.
pub(super) fn dimension<'w>(words: &[&'w str]) -> Option<(usize, &'w str)> {
    let count = number(words)?;
    let (unit, adjective) = (words.get(count)?, words.get(count + 1)?);
    let is_unit = has(UNITS, unit) || unit.strip_suffix('s').is_some_and(|span| has(SPANS, span));
    let adjective = bare(adjective);
    (is_unit && has(DIMENSIONS, adjective) && adjective != "apart").then_some((count + 2, adjective))
}

/// Whether an amount of money or a share is at the start.
pub(super) fn is_price(words: &[&str]) -> bool {
    let money = [
        "euros", "euro", "dollars", "pounds", "francs", "cents", "pence", "crowns", "yen", "EUR", "USD",
        "GBP",
    ];
    let has_sign = words.first().is_some_and(|word| word.starts_with(['€', '$', '£']));
    has_sign
        || number(words).is_some_and(|count| words.get(count).is_some_and(|unit| money.contains(&bare(unit))))
}

fn is_plain(word: &str) -> bool {
    word.chars().all(|letter| letter.is_alphabetic() || letter == '-')
}

/// Whether a noun looks like a plural.
pub(super) fn is_plural(noun: &str) -> bool {
    let irregular =
        ["people", "children", "men", "women", "mice", "feet", "teeth", "sheep", "geese", "fish", "data"];
    irregular.contains(&noun)
        || (noun.len() > 2
            && noun.ends_with('s')
            && !["ss", "us", "is", "'s", "’s"].iter().any(|end| noun.ends_with(end)))
}

/// The number of words of a noun phrase without its complements: up to a function word, an adverb or a comma.
pub(super) fn noun_phrase(words: &[&str]) -> usize {
    let mut length = 0;
    for word in words {
        let text = bare(word);
        if is_function(text) || (text.ends_with("ly") && length > 0) {
            break;
        }
        length += 1;
        if has_comma(word) {
            break;
        }
    }
    length
}

/// An object at the start: its noun phrase with complements by `of`.
pub(super) fn object(words: &[&str]) -> Option<usize> {
    let starts = match words.first().copied()? {
        "a" | "an" | "the" | "his" | "her" | "its" | "their" | "all" | "every" | "each" => 1,
        _ => return None,
    };
    let mut end = starts + noun_phrase(&words[starts..]);
    while end > starts && words.get(end) == Some(&"of") && !has_comma(words[end - 1]) {
        let determiner =
            usize::from(words.get(end + 1).is_some_and(|word| ["a", "an", "the"].contains(word)));
        let length = noun_phrase(&words[end + 1 + determiner..]);
        if length == 0 {
            return None;
        }
        end += 1 + determiner + length;
    }
    let last = bare(words.get(end - 1)?);
    let is_time = has(SPANS, last) || has(SPANS, last.trim_end_matches('s'));
    (end > starts && !is_time).then_some(end)
}

/// Whether words begin with a place: a preposition, an article or a name, and a noun of something that can be entered or seen.
pub(super) fn is_place(words: &[&str]) -> bool {
    let [preposition, rest @ ..] = words else { return false };
    if !has(WHERE, preposition) || time(words).is_some() {
        return false;
    }
    let (has_article, noun) = match rest {
        ["the" | "a" | "an", noun @ ..] => (true, noun),
        _ => (false, rest),
    };
    let is_name = noun.first().is_some_and(|word| word.starts_with(char::is_uppercase));
    let phrase = &noun[..noun_phrase(noun)];
    let is_none = phrase
        .iter()
        .any(|word| has(NO_PLACES, bare(word)) || word.starts_with(|c: char| c.is_ascii_digit()));
    (has_article || is_name) && !phrase.is_empty() && !is_none
}

/// A name at the start: capitalised words.
pub(super) fn name(words: &[&str]) -> Option<usize> {
    let mut length = 0;
    for word in words {
        let is_inner = length > 0
            && ["van", "von", "de", "der", "den", "la", "le", "da", "di", "du", "of"].contains(word);
        if !(word.starts_with(char::is_uppercase) || is_inner) {
            break;
        }
        length += 1;
        if has_comma(word) {
            break;
        }
    }
    (length > 0 && words[length - 1].starts_with(char::is_uppercase)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    #[test]
    fn times_end_where_their_date_ends() {
        for (text, expected) in [
            ("in 1803", Some((2, "When"))),
            ("in October", Some((2, "When"))),
            ("on June 30, 2017 and ended", Some((4, "When"))),
            ("on 3 June 1990", Some((4, "When"))),
            ("in the last week of July", Some((6, "When"))),
            ("in the middle of June, after", Some((5, "When"))),
            ("at the end of the 1990s", Some((6, "When"))),
            ("in the spring of 1990", Some((5, "When"))),
            ("in the 16th century by", Some((4, "When"))),
            ("in late 2015", Some((3, "When"))),
            ("from April to August", Some((4, "When"))),
            ("between 1853 and 1878", Some((4, "When"))),
            ("since 1987", Some((2, "Since when"))),
            ("until Sunday", Some((2, "Until when"))),
            ("at 8 pm", Some((3, "At what time"))),
            ("on Sundays", Some((2, "When"))),
            ("in the 1990 elections", None),
            ("in 1990 elections", None),
            ("in 1992 and 2000", None),
            ("in the kitchen", None),
            ("in May Street", None),
        ] {
            assert_eq!(time(&split(text)), expected, "{text}");
        }
    }

    #[test]
    fn amounts_have_a_noun() {
        for (text, expected) in [
            ("34 members and", Some((2, "How many members"))),
            ("about 1,200 small houses in", Some((4, "How many small houses"))),
            ("15 kg of sugar syrup before", Some((5, "How much sugar syrup"))),
            ("two million people", Some((3, "How many people"))),
            ("two or three cubs", Some((4, "How many cubs"))),
            ("30 days of holiday per", Some((4, "How many days of holiday"))),
            ("at least two thirds of", None),
            ("1803", None),
            ("40 cm above", None),
            ("three days in", None),
            ("1 house", None),
        ] {
            let found = amount(&split(text));
            let found = found.as_ref().map(|amount| (amount.length, amount.asks.as_str()));
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(dimension(&split("40 metres high and")), Some((3, "high")));
        assert_eq!(dimension(&split("40 metres of")), None);
        assert!(
            is_price(&split("seven euros at")) && is_price(&split("€7")) && !is_price(&split("seven hives"))
        );
    }

    #[test]
    fn durations_frequencies_objects_and_places_are_found() {
        assert_eq!(duration(&split("for three days in July")), Some(3));
        assert_eq!(duration(&split("for three hives")), None);
        for (text, expected) in [
            ("each week from April", Some(2)),
            ("every two weeks", Some(3)),
            ("once a month", Some(3)),
            ("three times a year, then", Some(4)),
            ("every hive", None),
            ("every day care centre", None),
        ] {
            assert_eq!(frequency(&split(text)), expected, "{text}");
        }
        assert_eq!(object(&split("a frame of young brood from a neighbour")), Some(5));
        assert_eq!(object(&split("the whole day")), None);
        assert_eq!(object(&split("that it is cold")), None);
        assert!(
            is_place(&split("in the kitchen"))
                && is_place(&split("at the mill"))
                && is_place(&split("in Leipzig"))
        );
        for text in ["in the middle of June", "in use", "in 1990", "in the same year", "for the club"] {
            assert!(!is_place(&split(text)), "{text}");
        }
        assert_eq!(name(&split("Herman J. van der Heide in")), Some(5));
        assert_eq!(name(&split("the club")), None);
    }
}
