//! Questions of a session that refer to earlier ones.

use super::{answer::CitedAnswer, citations::without_citations};

/// The largest number of earlier turns that a question is asked with: the one that names the topic, and the last ones.
const TURNS: usize = 3;
/// The largest number of words of an earlier answer that a generator reads again.
const READ: usize = 60;
/// The largest number of words of an earlier answer that a search has. A longer one is about more than the question.
const SEARCHED: usize = 12;

/// Words that refer to something that was named before.
const PRONOUNS: [&str; 19] = [
    "it", "its", "itself", "he", "him", "his", "himself", "she", "her", "hers", "herself", "they", "them",
    "their", "theirs", "this", "these", "those", "that",
];
/// First words of a question that goes on with an earlier one.
const OPENINGS: [&str; 12] = [
    "and",
    "but",
    "or",
    "so",
    "then",
    "also",
    "what about",
    "how about",
    "what else",
    "who else",
    "where else",
    "anything else",
];
/// Words of questions that name nothing.
const EMPTY: [&str; 26] = [
    "why", "when", "where", "who", "whom", "whose", "how", "what", "which", "much", "many", "long", "often",
    "far", "so", "not", "exactly", "else", "more", "since", "until", "is", "was", "did", "does", "do",
];

/// The questions of a session with their answers, to which the next question may refer.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    turns: Vec<Turn>,
}

/// A question with its answer.
#[derive(Clone, Debug)]
struct Turn {
    question: String,
    /// The text of a generator without citations; empty without a generator.
    answer: String,
    refers: bool,
}

/// A question together with the turns that it refers to.
#[derive(Clone, Debug)]
pub(super) struct FollowUp<'c> {
    question: &'c str,
    turns: Vec<&'c Turn>,
}

impl Conversation {
    /// The earlier questions that the last one was asked together with, first one first; empty if it stands alone.
    #[must_use]
    pub fn carried(&self) -> Vec<&str> {
        match self.turns.split_last() {
            Some((last, earlier)) if last.refers => {
                context(earlier).into_iter().map(|turn| turn.question.as_str()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A conversation of questions with their answers, whose citations such as `[1]` are left out.
    pub fn of_turns<'t>(turns: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut conversation = Self::default();
        for (question, answer) in turns {
            conversation.push(question.trim().to_owned(), uncited(answer));
        }
        conversation
    }

    /// A question with the turns that it refers to; `None` for one that stands alone.
    pub(super) fn follow_up<'c>(&'c self, question: &'c str) -> Option<FollowUp<'c>> {
        let turns = context(&self.turns);
        (!turns.is_empty() && refers(question)).then_some(FollowUp { question, turns })
    }

    /// Adds a question with its answer.
    pub(super) fn add(&mut self, answer: &CitedAnswer) {
        let sentences: Vec<&str> = answer.sentences.iter().map(|sentence| sentence.text.as_str()).collect();
        self.push(answer.question.clone(), sentences.join(" "));
    }

    fn push(&mut self, question: String, answer: String) {
        let refers = !self.turns.is_empty() && refers(&question);
        self.turns.push(Turn { question, answer, refers });
    }
}

/// An answer without its citations and the marks of sentences without support, with single blanks.
fn uncited(answer: &str) -> String {
    let bare = without_citations(answer).text;
    bare.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The turns to ask the next question with: from the last one that stands alone, at most [`TURNS`].
fn context(turns: &[Turn]) -> Vec<&Turn> {
    let first = turns.iter().rposition(|turn| !turn.refers).unwrap_or_default();
    let Some((topic, later)) = turns.get(first..).and_then(<[Turn]>::split_first) else { return Vec::new() };
    let later = &later[later.len().saturating_sub(TURNS - 1)..];
    std::iter::once(topic).chain(later).collect()
}

/// Whether a question names too little to be understood alone: it goes on with "and", has a pronoun before any name, or has
/// no word but those of questions.
fn refers(question: &str) -> bool {
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let words: Vec<String> = question.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
    let lower: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let text = lower.join(" ");
    let begins = |opening: &&str| {
        text.strip_prefix(*opening).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    if OPENINGS.iter().any(begins) {
        return true;
    }
    if lower.iter().all(|word| EMPTY.contains(&word.as_str())) {
        return !lower.is_empty();
    }
    // A name before the pronoun may be what it refers to.
    let names = |word: &String| word.starts_with(char::is_uppercase) && word != "I";
    let name = words.iter().skip(1).position(names).map_or(words.len(), |at| at + 1);
    lower[..name].iter().enumerate().any(|(at, word)| match word.as_str() {
        // `the book that she wrote` and `is there a rule that says so` refer to nothing.
        "that" => at + 1 == lower.len() || (at > 0 && EMPTY.contains(&lower[at - 1].as_str())),
        word => PRONOUNS.contains(&word),
    })
}

/// The first words of a text.
fn first_words(text: &str, count: usize) -> String {
    text.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}

impl FollowUp<'_> {
    /// The text to search for: the question, then the questions that it refers to, with short answers.
    pub(super) fn searched(&self) -> String {
        let mut parts = vec![self.question];
        for turn in &self.turns {
            parts.push(&turn.question);
            if turn.answer.split_whitespace().count() <= SEARCHED {
                parts.push(&turn.answer);
            }
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }

    /// The text for a generator that reads conversations: the earlier questions with their answers, then the question. It
    /// follows the word `Question:`.
    pub(super) fn written(&self) -> String {
        let mut text = String::new();
        for turn in &self.turns {
            let answer = first_words(&turn.answer, READ);
            let answer = if answer.is_empty() { answer } else { format!("Answer: {answer}\n") };
            text.push_str(&format!("{}\n{answer}Question: ", turn.question));
        }
        text + self.question
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(conversation: &mut Conversation, question: &str, answer: &str) {
        let sentence = |text: &str| super::super::answer::CitedSentence {
            text: text.into(),
            citations: vec![1],
            supported: true,
        };
        conversation.add(&CitedAnswer {
            question: question.into(),
            answer: format!("{answer} [1]"),
            evidence: Vec::new(),
            sentences: if answer.is_empty() { Vec::new() } else { vec![sentence(answer)] },
            is_generated: !answer.is_empty(),
        });
    }

    #[test]
    fn turns_of_another_program_have_no_citations() {
        assert_eq!(uncited("In 1803 [1][12]. By [some] Ann [?].\nx[] [3"), "In 1803. By [some] Ann. x[] [3");
        let conversation = Conversation::of_turns([(" where is the bridge of Kelso? ", "At the mill [2].")]);
        let follow_up = conversation.follow_up("and who owns it?").unwrap();
        assert_eq!(follow_up.searched(), "and who owns it? where is the bridge of Kelso? At the mill.");
        assert_eq!(
            follow_up.written(),
            "where is the bridge of Kelso?\nAnswer: At the mill.\nQuestion: and who owns it?"
        );
        assert!(conversation.follow_up("who owns the mill?").is_none());
        assert!(Conversation::of_turns([]).follow_up("and who owns it?").is_none());
    }

    #[test]
    fn pronouns_and_openings_refer_and_names_do_not() {
        for question in [
            "and who owns it?",
            "Who owns it?",
            "What about the roof?",
            "why?",
            "How long?",
            "Where did she live?",
            "Or in May",
            "what is that",
            "how are these cleaned",
        ] {
            assert!(refers(question), "{question}");
        }
        for question in [
            "who owns the bridge",
            "When Mira Oberlin left, where did she go?",
            "Which is the book that names all rivers?",
            "android phones",
            "hot water",
            "Orwell's books",
            "",
        ] {
            assert!(!refers(question), "{question}");
        }
    }

    #[test]
    fn a_follow_up_has_its_topic_and_a_new_question_begins_again() {
        let mut conversation = Conversation::default();
        assert!(conversation.follow_up("and who owns it?").is_none());
        said(&mut conversation, "Where is the bridge?", "In Kelso.");
        let follow_up = conversation.follow_up("and who owns it?").unwrap();
        assert_eq!(follow_up.searched(), "and who owns it? Where is the bridge? In Kelso.");
        assert_eq!(
            follow_up.written(),
            "Where is the bridge?\nAnswer: In Kelso.\nQuestion: and who owns it?"
        );
        assert!(conversation.carried().is_empty());
        said(&mut conversation, "and who owns it?", "");
        assert_eq!(conversation.carried(), ["Where is the bridge?"]);
        for at in 0..3 {
            said(&mut conversation, &format!("and its part {at}?"), &"long ".repeat(100));
        }
        let follow_up = conversation.follow_up("why?").unwrap();
        assert_eq!(
            follow_up.searched(),
            "why? Where is the bridge? In Kelso. and its part 1? and its part 2?"
        );
        assert_eq!(follow_up.written().matches("long").count(), 2 * READ);
        said(&mut conversation, "Who built the mill?", "");
        assert_eq!(conversation.follow_up("when?").unwrap().searched(), "when? Who built the mill?");
        assert!(conversation.carried().is_empty() && conversation.follow_up("Who was Ann Lee?").is_none());
    }
}
