//! The questions that a clause answers.

use super::{
    clause::{Clause, Predicate, capitalised, head, is_unclear},
    phrases::{
        amount, bare, dimension, duration, frequency, is_function, is_place, is_plural, is_price, is_weight,
        name, number, object, time, times,
    },
    verbs::{Form, active, is_participle, verb},
};

/// Verbs whose place is asked for by `Where`.
const LOCATED: [&str; 12] =
    ["stand", "lie", "hang", "live", "sit", "grow", "meet", "work", "begin", "start", "end", "happen"];
/// Participles after `be` whose place is asked for by `Where`.
const PLACED: [&str; 22] = [
    "located",
    "situated",
    "held",
    "born",
    "buried",
    "found",
    "kept",
    "stored",
    "installed",
    "made",
    "based",
    "raised",
    "educated",
    "built",
    "fixed",
    "displayed",
    "placed",
    "sold",
    "printed",
    "filmed",
    "recorded",
    "hidden",
];
/// Verbs of people.
const OF_PEOPLE: &str = "found lead write design measure chair build paint compose direct invent discover own manage run teach \
    translate inspect check donate sing produce edit conduct repair announce create review maintain approve";
/// Nouns of people. A word that ends with `ist` is one, too.
const PEOPLE: &str = "person man woman chair chairman chairwoman head author director manager owner president secretary treasurer \
    member leader founder editor teacher contact king queen prince princess duke engineer footballer actor actress player singer \
    politician writer poet painter sculptor lawyer judge composer musician rapper producer screenwriter professor officer soldier \
    general physician surgeon doctor nurse bishop priest architect coach swimmer runner cyclist boxer wrestler golfer cricketer \
    drummer dancer model photographer philosopher historian mathematician academic businessman businesswoman entrepreneur lecturer \
    researcher sprinter jumper skier skater driver rower sailor pilot explorer inventor farmer merchant diplomat minister mayor \
    governor senator monk nun saint murderer criminal comedian presenter broadcaster filmmaker novelist physicist goalkeeper \
    defender midfielder striker fencer gymnast handballer conductor translator diver racer activist executive designer blogger \
    chancellor ambassador sergeant captain colonel lieutenant major commander";
/// Words of a rest after which a price is asked for.
const PRICES: [&str; 8] = ["fee", "price", "cost", "rent", "fare", "deposit", "salary", "subscription"];

/// Whether a noun is of a person.
pub(super) fn is_person(noun: &str) -> bool {
    let ends = ["ist", "ian", "man", "woman", "grapher"];
    ends.iter().any(|end| noun.ends_with(end)) || PEOPLE.split_whitespace().any(|person| person == noun)
}

/// Words without some of them. A comma before what is left out is left out, too.
fn without<'w>(words: &[&'w str], from: usize, length: usize) -> Vec<&'w str> {
    let mut left = words[..from].to_vec();
    if let Some(last) = left.last_mut() {
        *last = bare(last);
    }
    let rest = &words[from + length..];
    left.extend(rest);
    left
}

/// The questions of a clause, the best first. The last resort is a question that is answered by yes.
pub(super) fn questions(clause: &Clause<'_>) -> Vec<String> {
    let rest = clause.rest.as_slice();
    let negated = ["not", "never", "no", "n't"];
    if rest.first().is_some_and(|word| negated.contains(word)) {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    found.extend(of_times(clause));
    found.extend(of_agent(clause));
    found.extend(of_amount(clause));
    found.extend(of_place(clause));
    found.extend(of_subject(clause));
    if found.is_empty() {
        found.extend(of_complement(clause));
        found.extend(of_object(clause));
    }
    // `May a name be written otherwise?` asks for leave.
    let is_possible =
        matches!(clause.predicate, Predicate::Auxiliary("may" | "might" | "could" | "would" | "shall"));
    // A verb without an auxiliary one may be a participle or a noun.
    let has_auxiliary = matches!(clause.predicate, Predicate::Auxiliary(_));
    if found.is_empty() && has_auxiliary && !is_possible && (2..=12).contains(&rest.len()) {
        found.push(clause.ask("", rest));
    }
    found
}

/// `When`, `How often`, `How long`: the phrase is left out.
fn of_times(clause: &Clause<'_>) -> Vec<String> {
    let rest = clause.rest.as_slice();
    let mut found = Vec::new();
    for from in 0..rest.len() {
        let words = &rest[from..];
        let phrase = time(words)
            .or_else(|| duration(words).map(|length| (length, "How long")))
            .or_else(|| frequency(words).map(|length| (length, "How often")))
            .or_else(|| times(words).map(|length| (length, "How many times")));
        let Some((length, opener)) = phrase else { continue };
        let left = without(rest, from, length);
        let is_bare_be =
            left.is_empty() && matches!(clause.predicate, Predicate::Auxiliary(word) if !is_be(word));
        // What follows a comma is another phrase.
        let end = match rest[from + length - 1].ends_with(',') {
            true => from,
            false => left.len(),
        };
        let comma = left[..end].iter().position(|word| word.ends_with(','));
        let left = &left[..comma.map_or(end, |at| at + 1)];
        let dangles = left.last().is_some_and(|last| is_function(last));
        let is_state = ["Since when", "Until when"].contains(&opener);
        if !is_bare_be && !dangles && (is_state || is_predicate(clause, left)) {
            found.push(clause.ask(opener, left));
        }
    }
    found
}

/// Whether a form of `be` keeps something to say: a participle, an adjective or nothing at all, but no bare time or place.
fn is_predicate(clause: &Clause<'_>, left: &[&str]) -> bool {
    match clause.predicate {
        Predicate::Auxiliary(word) if is_be(word) => {
            let is_noun = left.first().is_some_and(|word| ["a", "an", "the", "one"].contains(word));
            !is_noun
        }
        _ => true,
    }
}

fn is_be(word: &str) -> bool {
    ["is", "are", "was", "were"].contains(&word)
}

/// `Who founded the club?` of `The club was founded by Jonas Reyl`.
fn of_agent(clause: &Clause<'_>) -> Option<String> {
    let Predicate::Auxiliary(word) = clause.predicate else { return None };
    let rest = clause.rest.as_slice();
    let (past, present) = active(bare(rest.first()?)).filter(|_| is_be(word))?;
    let verb = if word.starts_with('w') { past } else { present };
    let by = rest.iter().position(|word| *word == "by")?;
    let end = by + 1 + names(&rest[by + 1..])?;
    let has_comma = rest[end - 1].ends_with(',');
    // `based on a play by Ann`: the play is by Ann.
    if rest[..by].iter().any(|word| ["a", "an", "the"].contains(word)) {
        return None;
    }
    let is_end =
        has_comma || rest.get(end).is_none_or(|next| is_function(next) && !["and", "or"].contains(next));
    let left = without(rest, by, end - by);
    let left = if has_comma { &left[1..by] } else { &left[1..] };
    if !is_end || left.first().is_some_and(|word| ["and", "as"].contains(word)) {
        return None;
    }
    let (subject, left) = (clause.subject.join(" "), left.join(" "));
    let parts: Vec<&str> = [verb, &subject, &left].into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("Who {}?", bare(&parts.join(" "))))
}

/// A name at the start, or two with `and` between them.
fn names(words: &[&str]) -> Option<usize> {
    let first = name(words)?;
    match words.get(first..) {
        Some(["and", second @ ..]) if !words[first - 1].ends_with(',') => {
            Some(first + name(second).map_or(0, |second| 1 + second))
        }
        _ => Some(first),
    }
}

/// `How many hives does the club keep?`, `How high is the tower?`, `How much does a jar cost?`
fn of_amount(clause: &Clause<'_>) -> Option<String> {
    let rest = clause.rest.as_slice();
    if let Some(count) = number(&clause.subject.iter().map(String::as_str).collect::<Vec<_>>()) {
        let things = &clause.subject[count..];
        let noun = things.join(" ");
        let is_of = |word: &String| ["of", "in"].contains(&word.as_str());
        let is_thing = things.first().is_some_and(|first| !is_of(first)) && is_plural(head(things));
        return (is_thing && !is_price(rest)).then(|| clause.ask_subject(&format!("How many {noun}")));
    }
    match clause.predicate {
        Predicate::Lexical { base: "cost", .. } => {
            let count = number(rest).or_else(|| is_price(rest).then_some(0))?;
            rest.get(count).map(|_| clause.ask("How much", &rest[count + 1..]))
        }
        Predicate::Lexical { base: "weigh", .. } => is_weight(rest).then(|| clause.ask("How much", &[])),
        Predicate::Auxiliary(word) if is_be(word) => {
            if let Some((length, adjective)) = dimension(rest) {
                return Some(clause.ask(&format!("How {adjective}"), &rest[length..]));
            }
            let noun = head_of(clause);
            (is_price(rest) && PRICES.contains(&noun.as_str())).then(|| clause.ask("How much", &[]))
        }
        Predicate::Lexical { .. } => of_counted(clause, rest, None),
        // `Passwords must have 14 characters`
        Predicate::Auxiliary(_) => {
            let (first, rest) = rest.split_first()?;
            matches!(verb(first), Some((_, Form::Base))).then(|| of_counted(clause, rest, Some(*first)))?
        }
    }
}

/// The question for an amount at the start of words after a verb, which an auxiliary verb may precede.
fn of_counted(clause: &Clause<'_>, words: &[&str], verb: Option<&str>) -> Option<String> {
    let amount = amount(words)?;
    let left = &words[amount.length..];
    let ends = words[amount.length - 1].ends_with(',');
    // `and` joins a second object.
    let is_joined = left.first().is_some_and(|word| ["and", "or", "than"].contains(word));
    let left: Vec<&str> = verb.into_iter().chain(left.iter().copied().filter(|_| !ends)).collect();
    (!is_joined).then(|| clause.ask(&amount.asks, &left))
}

fn head_of(clause: &Clause<'_>) -> String {
    head(&clause.subject).to_owned()
}

/// `Where does the key hang?`, `Where was Oberlin born?`, `Where are the keys?`
fn of_place(clause: &Clause<'_>) -> Option<String> {
    let rest = clause.rest.as_slice();
    match clause.predicate {
        Predicate::Lexical { base, .. } => {
            (LOCATED.contains(&base) && is_place(rest)).then(|| clause.ask("Where", &[]))
        }
        Predicate::Auxiliary(word) if is_be(word) => {
            if is_place(rest) {
                return Some(clause.ask("Where", &[]));
            }
            let (participle, place) = rest.split_first()?;
            // `based on a novel`
            let is_placed =
                PLACED.contains(participle) && !(*participle == "based" && place.starts_with(&["on"]));
            (is_placed && is_place(place)).then(|| clause.ask("Where", &[participle]))
        }
        Predicate::Auxiliary(_) => None,
    }
}

/// `Who measures the water content?` of a person's name before a verb of people.
fn of_subject(clause: &Clause<'_>) -> Option<String> {
    let Predicate::Lexical { base, .. } = clause.predicate else { return None };
    let subject: Vec<&str> = clause.subject.iter().map(String::as_str).collect();
    let is_name = subject.len() >= 2 && name(&subject) == Some(subject.len());
    let owns = clause.rest.iter().any(|word| ["its", "his", "her", "their"].contains(word));
    let is_of_people = OF_PEOPLE.split_whitespace().any(|verb| verb == base);
    (is_name && is_of_people && !owns && clause.rest.len() >= 2).then(|| clause.ask_subject("Who"))
}

/// `Who is the person on duty?`, `What is tea?`
fn of_complement(clause: &Clause<'_>) -> Option<String> {
    let Predicate::Auxiliary(word) = clause.predicate else { return None };
    let rest = clause.rest.as_slice();
    if !["is", "was"].contains(&word) || rest.is_empty() {
        return None;
    }
    let subject = head_of(clause);
    let is_name = name(rest) == Some(rest.len()) && !is_unclear(rest[0]);
    if is_name && clause.subject[0] == "the" {
        return Some(clause.ask(if is_person(&subject) { "Who" } else { "What" }, &[]));
    }
    if number(rest).is_some_and(|count| rest.len() <= count + 1) && clause.subject[0] == "the" {
        return Some(clause.ask("What", &[]));
    }
    None
}

/// `What does a colony without eggs get from a strong neighbour?`
fn of_object(clause: &Clause<'_>) -> Option<String> {
    let Predicate::Lexical { base, .. } = clause.predicate else { return None };
    let rest = clause.rest.as_slice();
    if let ("belong", ["to", owner @ ..]) = (base, rest) {
        return (name(owner) == Some(owner.len())).then(|| clause.ask("Who", &["to"]));
    }
    let length = object(rest)?;
    let left = &rest[length..];
    let others = ["and", "or", "that", "who", "which", "is", "off", "out", "up", "down", "away", "back"];
    let goes_on = left.first().is_some_and(|word| is_function(word) && !others.contains(word));
    let ends = left.is_empty() || rest[length - 1].ends_with(',');
    let left = if ends { &[][..] } else { left };
    let is_vague = base == "become" || (base == "have" && left.is_empty());
    (!is_vague && (ends || goes_on)).then(|| clause.ask("What", left))
}

/// The question of `There are twelve hives in the garden`.
pub(super) fn of_existence(words: &[&str]) -> Option<String> {
    let ["There", verb @ ("are" | "were"), rest @ ..] = words else { return None };
    let amount = amount(rest)?;
    let left = &rest[amount.length..];
    let is_place = left.first().is_some_and(|word| is_function(word)) && !left.contains(&"and");
    is_place.then(|| format!("{} {verb} there {}?", amount.asks, left.join(" ")))
}

/// The noun phrase of a definition such as `is a Swiss engineer of bridges`: `Swiss engineer`.
fn defined<'w>(rest: &[&'w str]) -> Option<(Vec<&'w str>, usize)> {
    if !["a", "an"].contains(rest.first()?) {
        return None;
    }
    // `a film and television actor`
    let joins = |at: usize| {
        let is_noun =
            |next: &&str| !is_function(next) && !matches!(verb(next), Some((_, Form::Third | Form::Past)));
        at > 1 && ["and", "or"].contains(&rest[at]) && rest.get(at + 1).is_some_and(is_noun)
    };
    // `a ruined abbey`, but `a station | established in 2014`
    let is_end = |at: usize| {
        let next = rest.get(at + 1).is_none_or(|next| is_function(next));
        (is_function(bare(rest[at])) && !joins(at))
            || (is_participle(bare(rest[at])) && next)
            || rest[at].ends_with(',')
    };
    let end = (1..rest.len()).position(is_end);
    let comma = end.is_some_and(|end| rest[end + 1].ends_with(',') && !is_participle(bare(rest[end + 1])));
    let end = 1 + end.map_or(rest.len() - 1, |end| end + usize::from(comma));
    let phrase: Vec<&str> = rest[1..end].iter().map(|word| bare(word)).collect();
    let is_noun = |word: &&str| {
        word.chars().all(|letter| letter.is_lowercase() || letter == '-') && !word.ends_with("ly")
    };
    ((1..=8).contains(&phrase.len()) && phrase.last().is_some_and(is_noun)).then_some((phrase, end))
}

/// The noun of a definition, such as `engineer`.
pub(super) fn noun<'w>(clause: &Clause<'w>) -> Option<&'w str> {
    let Predicate::Auxiliary("is" | "was" | "are" | "were") = clause.predicate else { return None };
    defined(&clause.rest).and_then(|(phrase, _)| phrase.last().copied())
}

/// The questions of a definition: `Which footballer plays for Incheon United?`, `Where is Kelso?`, `What is Tea?`
pub(super) fn of_definition(clause: &Clause<'_>, is_person: bool) -> Vec<String> {
    let rest = clause.rest.as_slice();
    let Some((phrase, end)) = defined(rest) else { return Vec::new() };
    let Some(noun) = phrase.last() else { return Vec::new() };
    let mut found = Vec::new();
    if let Some([who @ ("who" | "that" | "which"), verb, after @ ..]) = rest.get(end..)
        && !["who", "that", "which"].contains(verb)
        && after.len() >= 2
        && (*who == "who" || self::verb(verb).is_some() || is_be(verb))
    {
        found.push(format!("Which {} {verb} {}?", phrase.join(" "), bare(&after.join(" "))));
    }
    let place = rest.get(end..).filter(|place| is_place(place));
    let is_capital =
        place.and_then(|place| place.get(1)).is_some_and(|word| word.starts_with(char::is_uppercase));
    let is_group = ["group", "band", "duo", "trio", "quartet"].contains(noun);
    if is_capital && !is_person && !is_group {
        found.push(clause.ask("Where", &[]));
    }
    found.push(clause.ask(if is_person || is_group { "Who" } else { "What" }, &[]));
    found
}

/// The clause of a participle after a comma, such as `released by Supreme Records in 1986`: the same subject `was released`.
pub(super) fn participle<'w>(words: &[&'w str], clause: &Clause<'w>) -> Option<Clause<'w>> {
    let at = words.windows(2).position(|pair| pair[0].ends_with(',') && active(pair[1]).is_some())? + 1;
    let rest = &words[at..];
    let end = rest
        .iter()
        .position(|word| word.ends_with(',') || *word == "and")
        .map_or(rest.len(), |end| end + usize::from(rest[end] != "and"));
    let mut rest = rest[..end].to_vec();
    if let Some(last) = rest.last_mut() {
        *last = bare(last);
    }
    let was = if matches!(clause.predicate, Predicate::Auxiliary("are" | "were")) { "were" } else { "was" };
    Some(Clause { subject: clause.subject.clone(), predicate: Predicate::Auxiliary(was), rest })
}

/// The question of a clause after a time: `In December the colonies have no brood`.
pub(super) fn of_leading_time(opener: &str, clause: &Clause<'_>) -> Option<String> {
    let rest = clause.rest.as_slice();
    let is_copula =
        matches!(clause.predicate, Predicate::Auxiliary(word) if is_be(word)) && !is_predicate(clause, rest);
    (!rest.is_empty() && rest.len() <= 12 && !is_copula).then(|| capitalised(&clause.ask(opener, rest)))
}
