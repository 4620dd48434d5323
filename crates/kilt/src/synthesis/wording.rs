//! The wording of synthetic queries.

/// The first words of a question; often empty.
pub(super) const QUESTION_WORDS: &[&str] = &[
    "What",
    "Which",
    "Who",
    "Where",
    "In what year",
    "What was",
    "What is the name of",
    "Which of these",
    "",
    "",
    "",
    "",
];

/// Replacements of a hidden name.
pub(super) const PRONOUNS: &[&str] = &["who", "which", "that", "it", ""];

/// Connections between the parts of two pages.
pub(super) const BINDERS: &[&str] = &[" ", " that ", " of the ", " and "];

/// Questions about two names, `{0}` and `{1}`, of a kind `{2}`.
pub(super) const COMPARISONS: &[&str] = &[
    "Are both {0} and {1} {2}s?",
    "Are {0} and {1} located in the same country?",
    "Are {0} and {1} of the same nationality?",
    "Did {0} and {1} both work as {2}s?",
    "What do {0} and {1} have in common?",
    "Which {2} came out earlier, {0} or {1}?",
    "Which {2} has more members, {0} or {1}?",
    "Which was founded first, {0} or {1}?",
    "Who is older, {0} or {1}?",
    "Who was born first, {0} or {1}?",
];

/// Openings of a conversation.
pub(super) const OPENERS: &[&str] = &[
    "Do you like {0}?",
    "I love {0}!",
    "Have you ever heard of {0}?",
    "I am a big fan of {0}.",
    "Did you know about {0}?",
    "My favorite is {0}.",
    "I have been reading about {0} lately.",
    "{0} is great, what do you think?",
    "I've never tried {0}.",
    "What do you know about {0}?",
    "I like {0} a lot",
    "Are you interested in {0}? I find it fascinating.",
];

/// Generic replies.
pub(super) const REPLIES: &[&str] = &[
    "Yes, I do.",
    "I don't know much about it. Tell me more!",
    "That is interesting.",
    "Me too! What else do you know?",
    "Wow, I never knew that.",
    "Really? How come?",
    "No, I have not. Is it good?",
    "I agree, it is so cool.",
    "My brother told me about it once.",
    "I usually do that with my family on weekends.",
    "Do you know when it started?",
    "Where does it come from?",
    "I should try that some time!",
];

/// References to the topic of a conversation.
pub(super) const ABOUT: &[&str] = &["it", "they", "that"];

/// Mentions of another topic in passing.
pub(super) const ASIDES: &[&str] = &[
    "I also like {0}.",
    "It reminds me of {0}.",
    "I think {0} has something to do with it.",
    "My friend prefers {0}.",
    "Is it like {0}?",
];

/// Switches to another topic.
pub(super) const SWITCHES: &[&str] =
    &["What about {0}?", "Who is {0}?", "Have you heard of {0}?", "Tell me about {0}."];

/// A text with `{0}`, `{1}` and so on replaced.
pub(super) fn filled(text: &str, by: &[&str]) -> String {
    let mut out = text.to_owned();
    for (at, by) in by.iter().enumerate() {
        out = out.replace(&format!("{{{at}}}"), by);
    }
    out
}
