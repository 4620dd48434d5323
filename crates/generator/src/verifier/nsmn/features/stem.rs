//! The English stemmer Porter2, as nltk's `SnowballStemmer("english")` has it. That one keeps the regions R1 and R2 as
//! strings of their own, which part from the word's in rare cases, so stems differ from Snowball's there.

use super::stem_tables::{
    Change::{self, Become, BecomeInR2, Cut, LastToE},
    EXCEPTIONS, INVARIANT, STEP_2, STEP_3, STEP_4,
};

/// A word's stem, in lower case.
#[must_use]
pub(super) fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    if word.chars().count() <= 2 {
        return word;
    }
    if let Some((_, stem)) = EXCEPTIONS.iter().find(|(exception, _)| *exception == word) {
        return (*stem).to_owned();
    }
    for (stems, endings) in INVARIANT {
        let listed = |stem: &&&str| word.strip_prefix(**stem).is_some_and(|ending| endings.contains(&ending));
        if let Some(stem) = stems.iter().find(listed) {
            return (*stem).to_owned();
        }
    }
    let mut word = Stemmed::new(&word);
    word.step_0();
    word.step_1a();
    word.step_1b();
    word.step_1c();
    word.step_2();
    word.step_3();
    word.step_4();
    word.step_5();
    word.letters.iter().map(|&letter| if letter == 'Y' { 'y' } else { letter }).collect()
}

fn is_vowel(letter: char) -> bool {
    matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u' | 'y')
}

/// A word in work: a `Y` is a consonant.
struct Stemmed {
    letters: Vec<char>,
    /// How many of the last letters are R1.
    r1: usize,
    /// How many of the last letters are R2.
    r2: usize,
}

impl Stemmed {
    fn new(word: &str) -> Self {
        let mut letters: Vec<char> =
            word.chars().map(|c| if matches!(c, '’' | '‘' | '‛') { '\'' } else { c }).collect();
        if letters[0] == '\'' {
            letters.remove(0);
        }
        for at in 0..letters.len() {
            if letters[at] == 'y' && (at == 0 || is_vowel(letters[at - 1])) {
                letters[at] = 'Y';
            }
        }
        let prefix = ["gener", "commun", "arsen"].iter().find(|prefix| starts(&letters, prefix));
        let r1 = prefix.map_or_else(|| region(&letters), |prefix| letters.len() - prefix.len());
        let r2 = region(&letters[letters.len() - r1..]);
        Self { letters, r1, r2 }
    }

    fn ends(&self, ending: &str) -> bool {
        ending.len() <= self.letters.len()
            && self.letters.iter().rev().copied().zip(ending.chars().rev()).all(|(a, b)| a == b)
    }

    /// The letter `back` places from the end, 1 being the last.
    fn last(&self, back: usize) -> Option<char> {
        self.letters.len().checked_sub(back).map(|at| self.letters[at])
    }

    fn vowel_before(&self, end: usize) -> bool {
        self.letters[..self.letters.len().saturating_sub(end)].iter().copied().any(is_vowel)
    }

    fn cut(&mut self, letters: usize) {
        self.letters.truncate(self.letters.len() - letters);
        self.r1 = self.r1.saturating_sub(letters);
        self.r2 = self.r2.saturating_sub(letters);
    }

    fn change(&mut self, ending: &str, change: Change) {
        let (new, short) = match change {
            Cut(letters) => return self.cut(letters),
            LastToE => {
                self.letters.pop();
                return self.letters.push('e');
            }
            Become(new) => (new, 0),
            BecomeInR2(new) => (new, 1),
        };
        let length = |region: usize| region.checked_sub(ending.len()).map(|rest| rest + new.len());
        (self.r1, self.r2) = (length(self.r1).unwrap_or(0), length(self.r2).unwrap_or(short));
        self.letters.truncate(self.letters.len() - ending.len());
        self.letters.extend(new.chars());
    }

    fn step_0(&mut self) {
        if let Some(ending) = ["'s'", "'s", "'"].iter().find(|ending| self.ends(ending)) {
            self.cut(ending.len());
        }
    }

    fn step_1a(&mut self) {
        let letters =
            match ["sses", "ied", "ies", "us", "ss", "s"].into_iter().find(|ending| self.ends(ending)) {
                Some("sses") => 2,
                Some("ied" | "ies") => 1 + usize::from(self.letters.len() > 4),
                Some("s") => usize::from(self.vowel_before(2)),
                _ => 0,
            };
        self.cut(letters);
    }

    fn step_1b(&mut self) {
        let endings = ["eedly", "ingly", "edly", "eed", "ing", "ed"];
        let Some(ending) = endings.into_iter().find(|ending| self.ends(ending)) else { return };
        if ending.starts_with("ee") {
            if self.r1 >= ending.len() {
                self.change(ending, Become("ee"));
            }
            return;
        }
        if !self.vowel_before(ending.len()) {
            return;
        }
        self.cut(ending.len());
        if ["at", "bl", "iz"].iter().any(|ending| self.ends(ending)) {
            self.letters.push('e');
            self.r1 += 1;
            self.r2 += usize::from(self.letters.len() > 5 || self.r1 >= 3);
        } else if ["bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"].iter().any(|pair| self.ends(pair)) {
            self.cut(1);
        } else if self.r1 == 0 && self.ends_short() {
            self.letters.push('e');
        }
    }

    /// Whether the word ends in a short syllable.
    fn ends_short(&self) -> bool {
        match self.letters[..] {
            [first, last] => is_vowel(first) && !is_vowel(last),
            [.., before, vowel, last] => {
                !is_vowel(before) && is_vowel(vowel) && !is_vowel(last) && !matches!(last, 'w' | 'x' | 'Y')
            }
            _ => false,
        }
    }

    fn step_1c(&mut self) {
        if let [_, .., before, last @ ('y' | 'Y')] = &mut self.letters[..]
            && !is_vowel(*before)
        {
            *last = 'i';
        }
    }

    fn step_2(&mut self) {
        let Some((ending, change)) = STEP_2.into_iter().find(|(ending, _)| self.ends(ending)) else { return };
        let fits = match ending {
            "ogi" => self.last(4) == Some('l'),
            "li" => self.last(3).is_some_and(|letter| "cdeghkmnrt".contains(letter)),
            _ => true,
        };
        if fits && self.r1 >= ending.len() {
            self.change(ending, change);
        }
    }

    fn step_3(&mut self) {
        let Some((ending, change)) = STEP_3.into_iter().find(|(ending, _)| self.ends(ending)) else { return };
        let region = if ending == "ative" { self.r1.min(self.r2) } else { self.r1 };
        if region >= ending.len() {
            self.change(ending, change);
        }
    }

    fn step_4(&mut self) {
        let Some(ending) = STEP_4.into_iter().find(|ending| self.ends(ending)) else { return };
        let fits = ending != "ion" || matches!(self.last(4), Some('s' | 't'));
        if fits && self.r2 >= ending.len() {
            self.cut(ending.len());
        }
    }

    fn step_5(&mut self) {
        let cut = match self.last(1) {
            Some('l') => self.r2 > 0 && self.last(2) == Some('l'),
            Some('e') => self.r2 > 0 || self.r1 > 0 && self.e_is_silent(),
            _ => false,
        };
        if cut {
            self.letters.pop();
        }
    }

    /// Whether no short syllable is before the last letter.
    fn e_is_silent(&self) -> bool {
        match self.letters[..] {
            [.., first, second, last, _] => {
                is_vowel(last) || matches!(last, 'w' | 'x' | 'Y') || !is_vowel(second) || is_vowel(first)
            }
            _ => false,
        }
    }
}

fn starts(letters: &[char], prefix: &str) -> bool {
    prefix.len() <= letters.len() && prefix.chars().zip(letters).all(|(a, b)| a == *b)
}

/// How many letters follow the first consonant that follows a vowel.
fn region(letters: &[char]) -> usize {
    let first = letters.windows(2).position(|pair| is_vowel(pair[0]) && !is_vowel(pair[1]));
    first.map_or(0, |at| letters.len() - at - 2)
}
