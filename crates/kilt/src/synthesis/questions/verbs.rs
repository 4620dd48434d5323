//! English verbs with their forms. A word that is no form of a verb here begins no predicate.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

/// The base forms of regular verbs. `+` after a verb: its last consonant is doubled before `ed`.
const REGULAR: &str = "accept achieve act adapt add address adjust admit+ adopt affect agree aim allow announce answer appear \
    apply appoint approve arrange arrive assist attach attack attend attract award ban+ base behave believe belong boil \
    border bottle brew burn calculate call cancel carry cause celebrate chair change charge check claim clean \
    clear close collaborate collect combine command comment commission compare compete complete compose compress conduct \
    confirm connect consider construct consume contain continue contribute control+ convert cook cool copy correct cover \
    crack create cross cultivate cycle damage debut decide declare decline decorate decrease defeat define delay delete deliver \
    demand demolish depend describe design destroy develop die differ direct discover discuss display dissolve distribute divide \
    document donate double drain dribble drop+ dry earn edit educate eject elect employ empty enable encourage end enforce enjoy \
    enlist ensure enter erect escape establish examine exceed exchange exclude exist expand expire explain explore export express \
    extend face fail fasten feature fetch fill filter finance finish fire fix flower fold follow force form found fund \
    gain gather generate govern grade graduate grant greet guarantee guard guide handle happen harvest hatch head heat help hire \
    host hunt identify ignore illustrate imagine import improve include increase indicate influence inform inhabit inherit \
    inspect install introduce invent invest invite involve isolate issue join jump kick kill label lack land last launch lease \
    lift limit link list live load locate lock log+ lower lubricate maintain manage manufacture mark marry measure melt \
    mention merge migrate mix mount move multiply name need notify number obey obtain occupy occur+ offer open operate oppose \
    orbit order organise organize own pack paint park pass perform permit+ pick place plan+ plant play point polish possess \
    post pour power practise praise predict prefer+ prepare present preserve press prevent print process produce prohibit promote \
    propose protect prove provide publish pull pump purchase push qualify rain raise range reach receive recognise recognize \
    recommend record recover reduce refer+ refill refuse regard register regulate reject relate release relocate rely remain \
    remember remove rename rent repair repeat replace replicate report represent request require rescue research reserve resign \
    rest restart restore result retain retire return review reward roast roll rotate rule sail sample save scan+ schedule score \
    seal search secure select separate serve settle share ship+ sign simplify slow smoke snow solve sort span+ specialise \
    specialize sponsor stage star+ start state stay stock stop+ store study submit+ succeed suffer supervise supply support \
    surround survey survive suspend switch taste tend test tour train transfer+ translate transmit+ transport travel treat \
    trigger trim+ try turn type unite update upgrade use vary visit vote wait walk want warm warn wash waste watch water weigh \
    welcome wish work wrap+ yield";

/// Irregular verbs: base form, past, participle. Verbs whose past is their base form are in no other tense here.
const IRREGULAR: &str = "become/became/become begin/began/begun bind/bound/bound bite/bit/bitten blow/blew/blown \
    break/broke/broken bring/brought/brought build/built/built buy/bought/bought catch/caught/caught choose/chose/chosen \
    come/came/come cost/cost/cost cut/cut/cut deal/dealt/dealt dig/dug/dug do/did/done draw/drew/drawn drink/drank/drunk \
    drive/drove/driven eat/ate/eaten fall/fell/fallen feed/fed/fed feel/felt/felt fight/fought/fought find/found/found \
    flee/fled/fled fly/flew/flown forget/forgot/forgotten freeze/froze/frozen get/got/got give/gave/given go/went/gone \
    grow/grew/grown hang/hung/hung have/had/had hide/hid/hidden hit/hit/hit hold/held/held keep/kept/kept know/knew/known \
    lay/laid/laid lead/led/led learn/learned/learned leave/left/left lend/lent/lent let/let/let lie/lay/lain lose/lost/lost \
    make/made/made mean/meant/meant meet/met/met pay/paid/paid put/put/put read/read/read ride/rode/ridden ring/rang/rung \
    rise/rose/risen run/ran/run see/saw/seen seek/sought/sought sell/sold/sold send/sent/sent set/set/set shoot/shot/shot \
    show/showed/shown shut/shut/shut sing/sang/sung sink/sank/sunk sit/sat/sat sleep/slept/slept speak/spoke/spoken \
    spend/spent/spent spin/spun/spun spread/spread/spread stand/stood/stood steal/stole/stolen stick/stuck/stuck \
    strike/struck/struck sweep/swept/swept swim/swam/swum take/took/taken teach/taught/taught tell/told/told think/thought/thought \
    throw/threw/thrown wake/woke/woken wear/wore/worn weave/wove/woven win/won/won write/wrote/written";

/// The form in which a verb is the first word of a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The present with a subject in the plural: `keep`.
    Base,
    /// The present with a subject in the singular: `keeps`.
    Third,
    /// `kept`
    Past,
}

struct Lexicon {
    /// The base form and the form of a word.
    verbs: FxHashMap<String, (&'static str, Form)>,
    /// The past and the present in the singular of participles.
    participles: FxHashMap<String, (String, String)>,
}

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let mut lexicon = Lexicon { verbs: FxHashMap::default(), participles: FxHashMap::default() };
    // Irregular verbs come last, so that `found` is the past of `find`.
    for entry in REGULAR.split_whitespace() {
        let base = entry.trim_end_matches('+');
        let past = regular_past(base, entry != base);
        lexicon.add(base, &past, &past);
    }
    for entry in IRREGULAR.split_whitespace() {
        let mut forms = entry.split('/');
        if let (Some(base), Some(past), Some(participle)) = (forms.next(), forms.next(), forms.next()) {
            lexicon.add(base, past, participle);
        }
    }
    lexicon.verbs.insert("has".to_owned(), ("have", Form::Third));
    lexicon
});

impl Lexicon {
    fn add(&mut self, base: &'static str, past: &str, participle: &str) {
        self.verbs.insert(past.to_owned(), (base, Form::Past));
        self.verbs.insert(third(base), (base, Form::Third));
        self.verbs.insert(base.to_owned(), (base, Form::Base));
        self.participles.insert(participle.to_owned(), (past.to_owned(), third(base)));
    }
}

fn is_consonant(letter: u8) -> bool {
    !b"aeiou".contains(&letter)
}

/// Whether a word ends with a consonant and `y`.
fn ends_with_consonant_y(word: &str) -> bool {
    matches!(word.as_bytes(), [.., before, b'y'] if is_consonant(*before))
}

fn regular_past(base: &str, doubles: bool) -> String {
    match base.as_bytes().last() {
        Some(b'e') => format!("{base}d"),
        Some(b'y') if ends_with_consonant_y(base) => format!("{}ied", &base[..base.len() - 1]),
        Some(&last) if doubles => format!("{base}{}ed", char::from(last)),
        _ => format!("{base}ed"),
    }
}

fn third(base: &str) -> String {
    if ends_with_consonant_y(base) {
        return format!("{}ies", &base[..base.len() - 1]);
    }
    let hisses = ["s", "sh", "ch", "x", "z", "o"].iter().any(|end| base.ends_with(end));
    format!("{base}{}", if hisses { "es" } else { "s" })
}

/// The base form of a verb, and the form that the word is.
pub(super) fn verb(word: &str) -> Option<(&'static str, Form)> {
    LEXICON.verbs.get(word).copied()
}

/// Whether a word can follow a form of `be` as a participle.
pub(super) fn is_participle(word: &str) -> bool {
    word == "born" || LEXICON.participles.contains_key(word) || (word.len() > 4 && word.ends_with("ed"))
}

/// The past and the present in the singular of a participle: `wrote` and `writes` of `written`.
pub(super) fn active(participle: &str) -> Option<(&'static str, &'static str)> {
    LEXICON.participles.get(participle).map(|(past, present)| (past.as_str(), present.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_their_base() {
        for (word, expected) in [
            ("keeps", Some(("keep", Form::Third))),
            ("kept", Some(("keep", Form::Past))),
            ("carries", Some(("carry", Form::Third))),
            ("carried", Some(("carry", Form::Past))),
            ("stopped", Some(("stop", Form::Past))),
            ("reaches", Some(("reach", Form::Third))),
            ("found", Some(("find", Form::Past))),
            ("founded", Some(("found", Form::Past))),
            ("has", Some(("have", Form::Third))),
            ("measure", Some(("measure", Form::Base))),
            ("cost", Some(("cost", Form::Base))),
            ("stone", None),
        ] {
            assert_eq!(verb(word), expected, "{word}");
        }
    }

    #[test]
    fn participles_have_their_active_forms() {
        assert_eq!(
            (active("written"), active("founded")),
            (Some(("wrote", "writes")), Some(("founded", "founds")))
        );
        assert!(is_participle("located") && !is_participle("sewn") && !is_participle("red"));
        assert_eq!(active("stone"), None);
    }
}
