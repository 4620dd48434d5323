//! Rule-based coreference: chains of mentions within a document. Names match by their words. Pronouns and
//! descriptions match by agreement and salience (after Lappin and Leass 1994). Names come first, as in the
//! sieves of Raghunathan et al. 2010.

mod given_names;
mod names;
mod options;
mod typed;

use rustc_hash::FxHashMap;

use crate::{
    Chain, Coreference, Document, EntityType, Gender, Mention, MentionForm, Pronoun, Reference, Result,
    pronoun,
};

pub use options::CoreferenceKind;
pub use typed::TypedCoreference;

use given_names::gender_of;
use names::Name;

/// The number of preceding sentences searched for a pronoun.
const REACH: usize = 5;
/// The number of preceding sentences searched for a description.
const NOMINAL_REACH: usize = 3;
/// The confidence of a pronoun's link to the only name of the document that agrees but does not precede it.
const ADOPTED: f32 = 0.6;

/// Rule-based coreference.
///
/// A confidence is the softmax share of the chosen entity among the candidates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

/// An entity with the mentions read so far.
struct Entity {
    kind: EntityType,
    names: Vec<Name>,
    gender: Option<Gender>,
    /// Mentions with their confidences, in reading order.
    mentions: Vec<(usize, f32)>,
}

impl Coreference for Rules {
    fn chains(&self, document: &Document, mentions: &[Mention]) -> Result<Vec<Chain>> {
        let mut reader = Reader {
            document,
            mentions,
            entities: Vec::new(),
            owners: vec![None; mentions.len()],
            index: FxHashMap::default(),
            speakers: [None; 2],
            rivals: Vec::new(),
        };
        for (at, mention) in mentions.iter().enumerate() {
            match mention.form {
                MentionForm::Name => reader.name(at),
                MentionForm::Pronoun => reader.pronoun(at),
                MentionForm::Nominal => reader.nominal(at),
            }
        }
        reader.adopt();
        let is_chain = |entity: &Entity| !entity.names.is_empty() || entity.mentions.len() > 1;
        let others = reader.others();
        let entities = reader.entities.iter().zip(others).filter(|(entity, _)| is_chain(entity));
        let mut chains: Vec<Chain> = entities.map(|(entity, others)| reader.chain(entity, others)).collect();
        chains.sort_by_key(|chain| chain.mentions[0].0);
        Ok(chains)
    }
}

struct Reader<'a> {
    document: &'a Document,
    mentions: &'a [Mention],
    /// In the order of their first mentions.
    entities: Vec<Entity>,
    /// The entity of each mention read so far.
    owners: Vec<Option<usize>>,
    /// Entities by the keys that agreeing names share, so that time is not quadratic in the number of names.
    index: FxHashMap<String, Vec<usize>>,
    /// The entities of `I` and of `we`.
    speakers: [Option<usize>; 2],
    /// Mentions with the entities that they agree with and were not joined to, and the confidence of each.
    rivals: Vec<(usize, usize, f32)>,
}

/// The largest number of entities that a name is compared with, the most recent ones.
const RIVALS: usize = 32;

impl Reader<'_> {
    /// The chain of an entity. Its representative is the mention with the most words, the first of several.
    fn chain(&self, entity: &Entity, others: Vec<(usize, f32)>) -> Chain {
        let mut mentions = entity.mentions.clone();
        mentions.sort_by_key(|(at, _)| *at);
        let length = |at: usize| match self.mentions[at].form {
            MentionForm::Name => 1 + self.mentions[at].tokens.len(),
            MentionForm::Nominal => 1,
            MentionForm::Pronoun => 0,
        };
        let best = mentions.iter().max_by_key(|(at, _)| (length(*at), std::cmp::Reverse(*at)));
        let representative = best.map_or(0, |(at, _)| *at);
        Chain { mentions, representative, others }
    }

    /// For each entity the mentions of others that may belong to it, ascending, with the greatest confidence of each.
    fn others(&self) -> Vec<Vec<(usize, f32)>> {
        let mut others: Vec<Vec<(usize, f32)>> = vec![Vec::new(); self.entities.len()];
        for (at, entity, sure) in &self.rivals {
            if self.owners[*at] != Some(*entity) {
                others[*entity].push((*at, *sure));
            }
        }
        for others in &mut others {
            others.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            others.dedup_by_key(|(at, _)| *at);
        }
        others
    }

    fn join(&mut self, entity: usize, at: usize, confidence: f32) {
        self.entities[entity].mentions.push((at, confidence));
        self.owners[at] = Some(entity);
    }

    fn add(&mut self, entity: Entity, at: usize) -> usize {
        self.owners[at] = Some(self.entities.len());
        self.entities.push(entity);
        self.entities.len() - 1
    }

    fn name(&mut self, at: usize) {
        let mention = &self.mentions[at];
        let name = Name::of(self.document, mention);
        let mut order: Vec<usize> = Vec::new();
        for key in name.keys() {
            let entities = self.index.get(&key).map_or(&[][..], Vec::as_slice);
            order.extend(&entities[entities.len().saturating_sub(RIVALS)..]);
        }
        order.sort_unstable();
        order.dedup();
        // Ties go to the most recent entity.
        let recent = |entity: &Entity| entity.mentions.last().map(|(at, _)| *at);
        order.sort_by_key(|other| std::cmp::Reverse(recent(&self.entities[*other])));
        let mut best: Option<(f32, usize)> = None;
        let mut agreeing: Vec<(usize, f32)> = Vec::new();
        for other in order {
            let entity = &self.entities[other];
            let agreement = if entity.kind == mention.kind {
                let of = |earlier: &Name| name.agrees(earlier, mention.kind);
                entity.names.iter().map(of).fold(0.0, f32::max)
            } else if is_date(entity.kind) || is_date(mention.kind) {
                0.0
            } else {
                // A tagger may label one name as organisation and as location.
                let same = entity.names.iter().any(|earlier| earlier.words() == name.words());
                if same { 0.8 } else { 0.0 }
            };
            if agreement > 0.0 {
                agreeing.push((other, agreement));
                if best.is_none_or(|(greatest, _)| agreement > greatest) {
                    best = Some((agreement, other));
                }
            }
        }
        let gender =
            (mention.kind == EntityType::Person).then(|| name.gendered().and_then(gender_of)).flatten();
        let keys: Vec<String> = name.keys().collect();
        let (entity, is_new) = match best {
            Some((agreement, other)) => {
                let sure = if agreement > 0.97 || agreeing.len() == 1 { agreement } else { agreement * 0.8 };
                self.join(other, at, sure);
                let rivals = agreeing.into_iter().filter(|(rival, _)| *rival != other);
                self.rivals.extend(rivals.map(|(rival, agreement)| (at, rival, agreement * 0.8)));
                let entity = &mut self.entities[other];
                entity.gender = entity.gender.or(gender);
                let is_new = !entity.names.contains(&name);
                if is_new {
                    entity.names.push(name);
                }
                (other, is_new)
            }
            None => {
                let entity =
                    Entity { kind: mention.kind, names: vec![name], gender, mentions: vec![(at, 1.0)] };
                (self.add(entity, at), true)
            }
        };
        if is_new {
            for key in keys {
                let entities = self.index.entry(key).or_default();
                if entities.last() != Some(&entity) {
                    entities.push(entity);
                }
            }
        }
    }

    fn pronoun(&mut self, at: usize) {
        let Some(known) = pronoun(self.document.word(self.mentions[at].tokens.start)) else { return };
        let fitting = match known.reference {
            Reference::Speaker => self.speaker(at, known),
            Reference::Relative => match self.relative(at, known) {
                Some(chosen) => vec![chosen],
                None => self.before(at, known),
            },
            Reference::Before => self.before(at, known),
        };
        self.rivals.extend(fitting.iter().skip(1).map(|(entity, sure)| (at, *entity, *sure)));
        match fitting.first().copied() {
            Some((entity, confidence)) => {
                let own = &mut self.entities[entity];
                own.gender = own.gender.or(known.gender);
                self.join(entity, at, confidence);
            }
            None => {
                let entity = Entity {
                    kind: known.kind,
                    names: vec![],
                    gender: known.gender,
                    mentions: vec![(at, 1.0)],
                };
                self.add(entity, at);
            }
        }
        if known.reference == Reference::Speaker {
            self.speakers[usize::from(known.plural)] = self.owners[at];
        }
    }

    /// Whether a pronoun agrees with an entity.
    fn fits(&self, known: Pronoun, entity: &Entity) -> bool {
        use EntityType::{Date, Location, Organisation, Other, Person};
        if let (Some(a), Some(b)) = (known.gender, entity.gender)
            && a != b
        {
            return false;
        }
        // Third-person pronouns do not refer to a speaker.
        if entity.names.is_empty() && self.is_speaker(entity) {
            return false;
        }
        match (known.kind, entity.kind) {
            (_, Date) => false,
            (Person, kind) => kind == Person,
            (Organisation, kind) => matches!(kind, Organisation | Other | Location),
            (Location, kind) => matches!(kind, Organisation | Location),
            // They: an organisation, or people of whom one is named.
            (_, kind) if known.plural => matches!(kind, Organisation | Other),
            _ => true,
        }
    }

    fn is_speaker(&self, entity: &Entity) -> bool {
        let is = |at: usize| {
            let mention = &self.mentions[at];
            mention.form == MentionForm::Pronoun
                && pronoun(self.document.word(mention.tokens.start))
                    .is_some_and(|known| known.reference == Reference::Speaker)
        };
        entity.mentions.first().is_some_and(|(first, _)| is(*first))
    }

    /// The antecedent of a relative pronoun: the nearest agreeing mention of its sentence.
    fn relative(&self, at: usize, known: Pronoun) -> Option<(usize, f32)> {
        let own = &self.mentions[at];
        for earlier in (0..at).rev() {
            let mention = &self.mentions[earlier];
            if mention.sentence != own.sentence {
                break;
            }
            if mention.form == MentionForm::Pronoun {
                continue;
            }
            let owner = self.owners[earlier];
            let Some(owner) = owner.filter(|owner| self.fits(known, &self.entities[*owner])) else {
                continue;
            };
            let gap = own.tokens.start - mention.tokens.end;
            let sure = match gap {
                0 | 1 => 0.95,
                2..=5 => 0.75,
                _ => 0.55,
            };
            return Some((owner, sure));
        }
        None
    }

    /// The speaker of a text, one entity for all `I`, one for all `we`, with its confidence. Other entities that it may be
    /// follow.
    fn speaker(&self, at: usize, known: Pronoun) -> Vec<(usize, f32)> {
        if let Some(entity) = self.speakers[usize::from(known.plural)] {
            return vec![(entity, 0.9)];
        }
        // An organisation that is `we` is the topic of its text.
        let fitting = if known.plural { self.before(at, known) } else { Vec::new() };
        fitting.into_iter().map(|(entity, sure)| (entity, 0.7 * sure)).collect()
    }

    /// The entities mentioned within `reach` sentences before mention `at`, in the order of their first
    /// mentions.
    fn near(&self, at: usize, reach: usize) -> Vec<usize> {
        let first = self.mentions[at].sentence.saturating_sub(reach);
        let earlier = (0..at).rev().take_while(|other| self.mentions[*other].sentence >= first);
        let mut found: Vec<usize> = earlier.filter_map(|other| self.owners[other]).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The agreeing entities at a pronoun with their shares among all of them, the most salient one first.
    fn before(&self, at: usize, known: Pronoun) -> Vec<(usize, f32)> {
        let near = self.near(at, REACH).into_iter().map(|which| (which, &self.entities[which]));
        let fitting = near.filter(|(_, entity)| self.fits(known, entity));
        let scored = fitting.filter_map(|(which, entity)| {
            let mut salience = self.salience(at, entity, REACH)?;
            if known.kind == EntityType::Organisation && entity.kind == EntityType::Organisation {
                salience += 0.8;
            }
            if known.gender.is_some() && entity.gender == known.gender {
                salience += 1.0;
            }
            Some((which, salience))
        });
        shares(scored)
    }

    /// The salience of an entity at mention `at`; none if it was not mentioned within `reach` sentences.
    fn salience(&self, at: usize, entity: &Entity, reach: usize) -> Option<f32> {
        let own = &self.mentions[at];
        let mut best: Option<f32> = None;
        for (other, _) in entity.mentions.iter().rev() {
            let mention = &self.mentions[*other];
            let distance = own.sentence - mention.sentence;
            if distance > reach {
                break;
            }
            let form = match mention.form {
                MentionForm::Name => 0.3,
                MentionForm::Pronoun => 0.4,
                MentionForm::Nominal => 0.0,
            };
            let subject = if self.is_subject(*other) { 1.0 } else { 0.0 };
            // In one sentence, nearer mentions weigh slightly more.
            let near = 0.5 / (1.0 + (at - other) as f32);
            let value = form + subject + near - 0.8 * distance as f32;
            best = Some(best.map_or(value, |best| best.max(value)));
        }
        let best = best?;
        // The first mention of a document is its topic.
        let begins = entity.mentions.first().is_some_and(|(first, _)| {
            self.mentions[*first].sentence == 0
                && (0..*first).all(|earlier| is_date(self.mentions[earlier].kind))
        });
        let often = (entity.mentions.len() as f32).ln() * 0.3;
        Some(best + often + if begins { 0.8 } else { 0.0 })
    }

    /// Whether a mention is the first of its sentence and near its start.
    fn is_subject(&self, at: usize) -> bool {
        let mention = &self.mentions[at];
        let start = self.document.sentences[mention.sentence].tokens.start;
        let is_first = at.checked_sub(1).is_none_or(|before| {
            let before = &self.mentions[before];
            before.sentence != mention.sentence || is_date(before.kind)
        });
        is_first && mention.tokens.start - start <= 12
    }

    /// Links pronouns without an antecedent to the document's only agreeing name, if there is exactly one.
    /// Many texts are partial, and the name may be in a later passage.
    fn adopt(&mut self) {
        let names: Vec<usize> =
            (0..self.entities.len()).filter(|which| !self.entities[*which].names.is_empty()).collect();
        // A document with many names has no such name, and the search would be slow.
        if names.len() > RIVALS {
            return;
        }
        for orphan in 0..self.entities.len() {
            let own = &self.entities[orphan];
            if !own.names.is_empty() || self.is_speaker(own) {
                continue;
            }
            let Some(known) = own
                .mentions
                .first()
                .and_then(|(at, _)| pronoun(self.document.word(self.mentions[*at].tokens.start)))
            else {
                continue;
            };
            let fitting: Vec<usize> =
                names.iter().copied().filter(|which| self.fits(known, &self.entities[*which])).collect();
            if let [entity] = fitting[..] {
                for (at, _) in std::mem::take(&mut self.entities[orphan].mentions) {
                    self.join(entity, at, ADOPTED);
                }
                let gender = self.entities[orphan].gender;
                let entity = &mut self.entities[entity];
                entity.gender = entity.gender.or(gender);
                continue;
            }
            let sure = ADOPTED / fitting.len().max(1) as f32;
            for (at, _) in &self.entities[orphan].mentions {
                self.rivals.extend(fitting.iter().map(|entity| (*at, *entity, sure)));
            }
        }
    }

    fn nominal(&mut self, at: usize) {
        let mention = &self.mentions[at];
        // An owned entity is less salient.
        let before = mention.tokens.start.checked_sub(1).map_or("", |before| self.document.word(before));
        let owned = pronoun(before).is_some() || before.ends_with("'s");
        let near = self.near(at, NOMINAL_REACH).into_iter().map(|which| (which, &self.entities[which]));
        let fitting = near.filter(|(_, entity)| entity.kind == mention.kind && !entity.names.is_empty());
        let scored =
            fitting.filter_map(|(which, entity)| Some((which, self.salience(at, entity, NOMINAL_REACH)?)));
        for (number, (entity, sure)) in shares(scored).into_iter().enumerate() {
            if number == 0 && !owned {
                self.join(entity, at, 0.7 * sure);
            } else {
                self.rivals.push((at, entity, 0.7 * sure));
            }
        }
    }
}

fn is_date(kind: EntityType) -> bool {
    kind == EntityType::Date
}

/// The softmax shares of scored indices. The one of the greatest score, the later of equals, is first.
fn shares(scored: impl Iterator<Item = (usize, f32)>) -> Vec<(usize, f32)> {
    let mut scored: Vec<(usize, f32)> = scored.collect();
    let Some(best) = (0..scored.len()).max_by(|a, b| scored[*a].1.total_cmp(&scored[*b].1)) else {
        return scored;
    };
    let greatest = scored[best].1;
    let weight = |score: f32| (2.0 * (score - greatest)).exp();
    let total: f32 = scored.iter().map(|(_, score)| weight(*score)).sum();
    scored.iter_mut().for_each(|(_, score)| *score = 0.98 * weight(*score) / total);
    scored.swap(0, best);
    scored
}

#[cfg(test)]
mod tests;
