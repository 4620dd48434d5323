//! Page titles, aliases, articles and the ways to refer to a subject.

use super::facts::{Class, Entity, Facts, Pid, Qid};
use super::wording::Style;

/// The page title of an entity: its label with an upper-case first letter, and a bracket if the label is a common word.
pub(crate) fn title(facts: &Facts, qid: Qid) -> String {
    let entity = &facts.entities[&qid];
    let mut chars = entity.label.chars();
    let label: String = chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect();
    let bracket = match (entity.kind.as_str(), entity.label.as_str()) {
        ("language" | "natural language", "American English" | "Latin") => None,
        ("language" | "natural language", _) => Some("language"),
        (_, "Georgia") => Some("country"),
        (_, "Epic" | "Jive" | "Arista" | "Decca" | "Elektra" | "Motown" | "Parlophone") => {
            Some("record label")
        }
        (_, "Western") => Some("genre"),
        (_, "organ") => Some("instrument"),
        (_, "play") => Some("literary form"),
        (_, "director" | "producer" | "model" | "presenter") => Some("profession"),
        _ => None,
    };
    match bracket {
        Some(bracket) => format!("{label} ({bracket})"),
        None => label,
    }
}

const COUNTRY_ALIASES: [(&str, &[&str]); 22] = [
    ("United States of America", &["United States", "USA", "America"]),
    ("United Kingdom", &["UK", "Britain"]),
    ("People's Republic of China", &["China"]),
    ("Democratic Republic of the Congo", &["DR Congo", "Congo"]),
    ("Republic of the Congo", &["Congo"]),
    ("North Korea", &["Korea"]),
    ("South Korea", &["Korea"]),
    ("Guinea-Bissau", &["Guinea"]),
    ("Equatorial Guinea", &["Guinea"]),
    ("Papua New Guinea", &["Guinea"]),
    ("Soviet Union", &["USSR"]),
    ("Federated States of Micronesia", &["Micronesia"]),
    ("Republic of Cyprus", &["Cyprus"]),
    ("State of Palestine", &["Palestine"]),
    ("Netherlands", &["Holland"]),
    ("Kingdom of the Netherlands", &["Holland"]),
    ("German Democratic Republic", &["East Germany"]),
    ("Ivory Coast", &["Côte d'Ivoire"]),
    ("Dominican Republic", &["Dominica"]),
    ("New York City", &["New York"]),
    ("Saint Petersburg", &["Petersburg"]),
    ("Los Angeles", &["LA"]),
];

/// Short names of an entity; several entities can share one.
pub(crate) fn aliases(facts: &Facts, qid: Qid) -> Vec<String> {
    let entity = &facts.entities[&qid];
    let mut found: Vec<String> = Vec::new();
    if facts.class(qid) == Class::Person {
        found.extend(surname(&entity.label).map(str::to_owned));
    } else {
        let known = COUNTRY_ALIASES.iter().find(|(label, _)| *label == entity.label);
        found.extend(known.into_iter().flat_map(|(_, names)| names.iter().map(|n| (*n).to_owned())));
        for end in [" University", " Records", " Music", " Recordings", " Music Group"] {
            found.extend(entity.label.strip_suffix(end).map(str::to_owned));
        }
        for start in ["University of ", "Kingdom of ", "Republic of "] {
            let short =
                entity.label.strip_prefix(start).filter(|s| !s.starts_with("the ") && !s.contains('('));
            found.extend(short.map(str::to_owned));
        }
        let people = entity.label.strip_suffix(" people").or_else(|| entity.label.strip_suffix(" language"));
        found.extend(people.map(str::to_owned));
    }
    found.retain(|alias| *alias != entity.label);
    found.sort();
    found.dedup();
    found
}

/// The short name of a person with several names: the last word, which is usually the surname, or the word before "of"
/// or "Jr.".
pub(crate) fn surname(label: &str) -> Option<&str> {
    if let Some((name, _)) = label.split_once(" of ") {
        return Some(name);
    }
    let label = label.strip_suffix(" Jr.").unwrap_or(label);
    let (_, last) = label.rsplit_once(' ')?;
    let ordinal = last.chars().all(|c| "IVX".contains(c));
    (last.chars().count() > 2 && !last.ends_with('.') && !ordinal).then_some(last)
}

/// A label in the given style, split into the article and the label.
pub(crate) fn article(entity: &Entity, class: Class, style: Style) -> &'static str {
    match style {
        Style::Plain => "",
        Style::A => indefinite(&entity.label),
        Style::The if class == Class::Person => "",
        Style::The => definite(&entity.label),
    }
}

/// "a " or "an ", by the first letter.
pub(crate) fn indefinite(noun: &str) -> &'static str {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    if vowel { "an " } else { "a " }
}

/// "the " if a proper name takes it, else nothing.
pub(crate) fn definite(label: &str) -> &'static str {
    const NEVER: [&str; 5] = ["Records", "Recordings", "Sony Music", "Music Group", "Republic Records"];
    const WORDS: [&str; 30] = [
        "Academy",
        "Academies",
        "Society",
        "Union",
        "United",
        "Republic",
        "Kingdom",
        "Empire",
        "Netherlands",
        "Islands",
        "Philippines",
        "Bahamas",
        "Gambia",
        "Maldives",
        "Comoros",
        "Seychelles",
        "Organization",
        "Organisation",
        "Agency",
        "Bank",
        "Association",
        "Group",
        "Council",
        "Commonwealth",
        "Community",
        "Party",
        "Centre",
        "Fund",
        "States",
        "See",
    ];
    const STARTS: [&str; 12] = [
        "University of ",
        "Académie",
        "Accademia",
        "Société",
        "Deutsche Akademie",
        "Collège",
        "École",
        "Visa Waiver",
        "Treaty",
        "Arab League",
        "International Centre",
        "European Southern",
    ];
    if NEVER.iter().any(|never| label.contains(never)) || label.starts_with("Academia") {
        return "";
    }
    let word = label.split([' ', ',']).any(|w| WORDS.contains(&w));
    if word || STARTS.iter().any(|s| label.starts_with(s)) { "the " } else { "" }
}

/// Names that can all be right for the same place: parts of a city, and successive states.
const NESTED: [&[&str]; 9] = [
    &["New York City", "Brooklyn", "Manhattan"],
    &["Los Angeles", "Santa Monica", "Beverly Hills"],
    &["Russia", "Soviet Union", "Russian Empire", "Russian Soviet Federative Socialist Republic"],
    &[
        "Germany",
        "German Empire",
        "Nazi Germany",
        "Weimar Republic",
        "West Germany",
        "German Democratic Republic",
        "Kingdom of Prussia",
        "Holy Roman Empire",
    ],
    &["United Kingdom", "Great Britain", "England", "United Kingdom of Great Britain and Ireland"],
    &["Austria", "Austria-Hungary", "Austrian Empire", "Holy Roman Empire"],
    &["Italy", "Kingdom of Italy"],
    &["Netherlands", "Kingdom of the Netherlands"],
    &["Czech Republic", "Czechoslovakia", "Austria-Hungary"],
];

/// Whether two objects are too similar for one to be wrong if the other is right.
pub(crate) fn alike(facts: &Facts, pid: Pid, a: Qid, b: Qid) -> bool {
    let (x, y) = (facts.entities[&a].label.as_str(), facts.entities[&b].label.as_str());
    let nested = NESTED.iter().any(|group| group.contains(&x) && group.contains(&y));
    let words = |text: &str| text.split([' ', '-']).map(str::to_owned).collect::<Vec<_>>();
    let (left, right) = (words(x), words(y));
    match pid.0 {
        // Genres, professions and fields that share a word ("pop rock", "rock music") overlap in meaning.
        106 | 136 | 101 | 1303 | 1412 => left.iter().any(|w| w.len() > 3 && right.contains(w)),
        // A residence can be a city or its country.
        551 | 119 => nested || facts.class(a) != facts.class(b),
        _ => nested,
    }
}

/// How a sentence refers to its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// By a name or description, written as given inside a sentence.
    Name(String),
    /// "They", for persons.
    They,
    /// "It", for all else.
    It,
}

impl Subject {
    /// The text for a placeholder, if the placeholder is the subject's or its verb's.
    pub(crate) fn fill(&self, placeholder: &str) -> Option<String> {
        let name = match self {
            Self::Name(name) => name.clone(),
            Self::They => "they".to_owned(),
            Self::It => "it".to_owned(),
        };
        let possessive = match self {
            Self::Name(name) if name.ends_with('s') => format!("{name}'"),
            Self::Name(name) => format!("{name}'s"),
            Self::They => "their".to_owned(),
            Self::It => "its".to_owned(),
        };
        let plural = *self == Self::They;
        Some(match placeholder {
            "S" => capitalised(&name),
            "s" => name,
            "S's" => capitalised(&possessive),
            "s's" => possessive,
            "was" => if plural { "were" } else { "was" }.to_owned(),
            "has" => if plural { "have" } else { "has" }.to_owned(),
            "is" => if plural { "are" } else { "is" }.to_owned(),
            _ => return None,
        })
    }
}

/// The text with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}
