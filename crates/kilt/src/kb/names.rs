//! Many names, each with a dense number.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Densely numbered names in insertion order, as one text with a hash table. Each name needs about 4 bytes
/// besides its text, so millions of entities fit.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<u64>,
    /// Open addressing with linear probing. A slot is a name's number plus 1; 0 is free. The length is a
    /// power of two.
    slots: Vec<u32>,
}

fn hash(name: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl Names {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name with that number.
    #[must_use]
    pub fn name(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.text[start..end])
    }

    /// The number of a name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.slot(name)].checked_sub(1)
    }

    /// The number of a name, a new one if the name is new. None beyond 2^32 - 2 names.
    pub fn intern(&mut self, name: &str) -> Option<u32> {
        if (self.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.slot(name);
        if let Some(number) = self.slots[slot].checked_sub(1) {
            return Some(number);
        }
        let number = u32::try_from(self.len()).ok().filter(|&number| number < u32::MAX - 1)?;
        self.text.push_str(name);
        self.ends.push(self.text.len() as u64);
        self.slots[slot] = number + 1;
        Some(number)
    }

    /// All names in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|number| self.name(number))
    }

    /// The slot of a name, or the free slot for it. The table is at most half full.
    fn slot(&self, name: &str) -> usize {
        let mask = self.slots.len() - 1;
        let hash = hash(name);
        let mut slot = (hash ^ (hash >> 32)) as usize & mask;
        loop {
            match self.slots[slot].checked_sub(1) {
                Some(number) if self.name(number as usize) != Some(name) => slot = (slot + 1) & mask,
                _ => return slot,
            }
        }
    }

    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 2).max(16)];
        for number in 0..self.len() {
            let Some(name) = self.name(number) else { continue };
            let slot = self.slot(name);
            // `intern` keeps all numbers below `u32::MAX`.
            self.slots[slot] = number as u32 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_the_number_that_it_came_with() {
        let mut names = Names::default();
        assert_eq!((names.number("a"), names.len()), (None, 0));
        for round in 0..2 {
            for at in 0..1000u32 {
                assert_eq!(names.intern(&format!("Q{}", at * at)), Some(at), "round {round}");
            }
        }
        assert_eq!(names.len(), 1000);
        assert_eq!(names.name(3), Some("Q9"));
        assert_eq!(names.name(1000), None);
        assert_eq!(names.number("Q16"), Some(4));
        assert_eq!(names.number("Q17"), None);
        assert_eq!(names.iter().take(3).collect::<Vec<_>>(), ["Q0", "Q1", "Q4"]);
    }
}
