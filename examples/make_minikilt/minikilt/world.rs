//! The generated world: a page for every entity, and the span of every stated fact.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::facts::{Class, Entity, Facts, Pid, Qid};
use super::line::{Line, render};
use super::names::{self, Subject};
use super::page::Page;
use super::wording::{Style, Wording, Wordings};

/// The split that may use an entity or a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Training.
    Train,
    /// Development.
    Dev,
    /// Test.
    Test,
}

impl Part {
    /// All three.
    pub(crate) const ALL: [Self; 3] = [Self::Train, Self::Dev, Self::Test];

    /// Its name in file names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Dev => "dev",
            Self::Test => "test",
        }
    }
}

/// The place of a statement on a page, in code points.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Index into the page's text.
    pub paragraph: usize,
    /// First code point.
    pub start: usize,
    /// One past the last code point.
    pub end: usize,
}

/// The statement of one relation of a subject on its page.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// The page's entity.
    pub subject: Qid,
    /// The relation.
    pub pid: Pid,
    /// The subject's class.
    pub class: Class,
    /// The objects in the sentence, in order.
    pub stated: Vec<Qid>,
    /// All objects, the stated ones first.
    pub all: Vec<Qid>,
    /// The sentence.
    pub span: Span,
    /// The split that may use it.
    pub part: Part,
}

/// The source of all datasets.
pub(crate) struct World {
    /// The facts.
    pub facts: Facts,
    /// The templates.
    pub wordings: Wordings,
    /// Pages of entities.
    pub pages: BTreeMap<Qid, Page>,
    /// Pages that list the bearers of a surname.
    pub lists: Vec<Page>,
    /// The facts on pages, by subject and relation.
    pub stated: BTreeMap<(Qid, Pid), Fact>,
    /// Titles by alias, for redirects; only aliases with one meaning.
    pub redirects: BTreeMap<String, String>,
    /// The entities of an alias.
    pub bearers: BTreeMap<String, Vec<Qid>>,
    /// The seed.
    pub seed: u64,
}

const LEAD: [u64; 7] = [106, 27, 19, 20, 69, 264, 136];
const LIFE: [u64; 7] = [551, 26, 451, 3373, 40, 509, 119];

impl World {
    /// Builds every page.
    pub(crate) fn build(facts: Facts, wordings: Wordings, seed: u64) -> Self {
        let parts = partition(&facts, seed);
        let mut bearers: BTreeMap<String, Vec<Qid>> = BTreeMap::new();
        for &qid in facts.entities.keys() {
            for alias in names::aliases(&facts, qid) {
                bearers.entry(alias).or_default().push(qid);
            }
        }
        let mut world = Self {
            facts,
            wordings,
            pages: BTreeMap::new(),
            lists: Vec::new(),
            stated: BTreeMap::new(),
            redirects: BTreeMap::new(),
            bearers,
            seed,
        };
        let inverse = world.inverse();
        let frequency = world.frequency();
        let qids: Vec<Qid> = world.facts.entities.keys().copied().collect();
        for (index, &qid) in qids.iter().enumerate() {
            let id = (20_011 + 17 * index).to_string();
            let page = Page::new(id, names::title(&world.facts, qid), Some(qid));
            let mut rng = world.rng(1_000 + index as u64);
            let page = world.write(page, qid, &inverse, &frequency, &parts, &mut rng);
            world.pages.insert(qid, page);
        }
        world.name_pages(qids.len());
        let titles: BTreeSet<&str> = world.pages.values().map(|p| p.title.as_str()).collect();
        let single =
            world.bearers.iter().filter(|(alias, who)| who.len() == 1 && !titles.contains(alias.as_str()));
        world.redirects =
            single.map(|(alias, who)| (alias.clone(), world.pages[&who[0]].title.clone())).collect();
        world
    }

    /// The random numbers of one stream.
    pub(crate) fn rng(&self, stream: u64) -> ChaCha8Rng {
        stream_of(self.seed, stream)
    }

    /// An entity's label.
    pub(crate) fn label(&self, qid: Qid) -> &str {
        &self.facts.entities[&qid].label
    }

    /// A subject's name inside a sentence, with its article.
    pub(crate) fn name(&self, qid: Qid) -> String {
        let label = self.label(qid);
        let the = if self.facts.class(qid) == Class::Person { "" } else { names::definite(label) };
        format!("{the}{label}")
    }

    /// The templates for a fact.
    pub(crate) fn wording(&self, fact: &Fact) -> &Wording {
        self.wordings
            .of(fact.pid, fact.class)
            .unwrap_or_else(|| unreachable!("every stated fact has a wording"))
    }

    /// The sentence that states a fact.
    pub(crate) fn sentence(&self, fact: &Fact) -> String {
        let paragraph = &self.pages[&fact.subject].text[fact.span.paragraph];
        paragraph.chars().skip(fact.span.start).take(fact.span.end - fact.span.start).collect()
    }

    /// The facts that a split may use, in order.
    pub(crate) fn facts_of(&self, part: Part) -> Vec<&Fact> {
        self.stated.values().filter(|f| f.part == part).collect()
    }

    fn inverse(&self) -> BTreeMap<Qid, BTreeMap<(Pid, Class), Vec<Qid>>> {
        let mut inverse: BTreeMap<Qid, BTreeMap<(Pid, Class), Vec<Qid>>> = BTreeMap::new();
        for ((subject, pid), objects) in &self.facts.statements {
            let class = self.facts.class(*subject);
            for object in objects {
                inverse.entry(*object).or_default().entry((*pid, class)).or_default().push(*subject);
            }
        }
        inverse
    }

    fn frequency(&self) -> BTreeMap<(Pid, Qid), usize> {
        let mut counts = BTreeMap::new();
        for ((_, pid), objects) in &self.facts.statements {
            for object in objects {
                *counts.entry((*pid, *object)).or_insert(0) += 1;
            }
        }
        counts
    }

    fn write(
        &mut self,
        mut page: Page,
        qid: Qid,
        inverse: &BTreeMap<Qid, BTreeMap<(Pid, Class), Vec<Qid>>>,
        frequency: &BTreeMap<(Pid, Qid), usize>,
        parts: &BTreeMap<Qid, Part>,
        rng: &mut ChaCha8Rng,
    ) -> Page {
        let class = self.facts.class(qid);
        let entity = self.facts.entities[&qid].clone();
        let own: Vec<(Pid, Vec<Qid>)> = {
            let range = (qid, Pid(0))..=(qid, Pid(u64::MAX));
            self.facts.statements.range(range).map(|((_, pid), objects)| (*pid, objects.clone())).collect()
        };
        let mut sections: [Vec<(Pid, Vec<Qid>)>; 3] = Default::default();
        for (pid, mut objects) in own {
            // Sentences keep the rarer object, because it is more specific.
            objects.sort_by_key(|o| (frequency[&(pid, *o)], *o));
            let place = if class != Class::Person || LEAD.contains(&pid.0) { 0 } else { 2 };
            sections[if LIFE.contains(&pid.0) { 1 } else { place }].push((pid, objects));
        }
        for section in &mut sections {
            section.shuffle(rng);
        }
        // A page begins with a description of its subject.
        sections[0].sort_by_key(|(pid, _)| pid.0 != 106);
        let heads = [
            ["", "", ""],
            ["Life", "Personal life", "Family and home"],
            ["Work", "Career", "Studies and work"],
        ];
        let mut first = true;
        let mut left_over: Vec<(Pid, Vec<Qid>)> = Vec::new();
        for (number, section) in sections.iter().enumerate() {
            let mut line = Line::default();
            let mut spans = Vec::new();
            if number == 0 && class != Class::Person {
                let opening = opening(&entity, &self.name(qid), rng);
                line.push(&opening);
                first = false;
            }
            for (pid, objects) in section {
                let Some(wording) = self.wordings.of(*pid, class) else { continue };
                let most = match pid.0 {
                    106 => 3,
                    530 => 3,
                    _ => 2,
                };
                let stated: Vec<Qid> = objects.iter().copied().take(most).collect();
                if objects.len() > most {
                    left_over.push((*pid, objects[most..].to_vec()));
                }
                let Some(template) = wording.list("page").choose(rng) else { continue };
                let subject = if std::mem::take(&mut first) {
                    Subject::Name(self.name(qid))
                } else {
                    self.reference(qid, class, template, rng)
                };
                let sentence = render(&self.facts, template, &subject, wording.style, &stated);
                if !line.text.is_empty() {
                    line.push(" ");
                }
                let start = line.len();
                line.append(&sentence);
                spans.push((*pid, stated, objects.clone(), start, line.len()));
            }
            let last = if class == Class::Person { 2 } else { 0 };
            let other = if number == last { self.distractor(qid, class, inverse, rng) } else { None };
            if let Some(other) = other {
                line.push(if line.text.is_empty() { "" } else { " " });
                line.append(&other);
            }
            if line.text.is_empty() {
                continue;
            }
            if number > 0 {
                page.section(heads[number][rng.random_range(0..3)]);
            }
            let paragraph = page.paragraph(&line);
            for (pid, stated, all, start, end) in spans {
                let people = all.iter().chain([&qid]).filter(|q| self.facts.class(**q) != Class::Thing);
                let related = matches!(pid.0, 737 | 26 | 451 | 3373 | 40 | 35 | 112);
                let people = people.filter(|q| **q == qid || related);
                let part = people.map(|q| parts[q]).max().unwrap_or(Part::Train);
                let span = Span { paragraph, start, end };
                let fact = Fact { subject: qid, pid, class, stated, all, span, part };
                self.stated.insert((qid, pid), fact);
            }
        }
        self.lists_of(&mut page, qid, class, &left_over, inverse.get(&qid), rng);
        page.categories = self.categories(qid, class, &entity);
        page
    }

    /// A pronoun, a short name or a description, in the places that allow one.
    fn reference(&self, qid: Qid, class: Class, template: &str, rng: &mut ChaCha8Rng) -> Subject {
        let label = self.label(qid);
        let opens = template.starts_with("{S");
        if class != Class::Person {
            return if opens && rng.random_bool(0.5) { Subject::It } else { Subject::Name(self.name(qid)) };
        }
        let short = names::surname(label).unwrap_or(label).to_owned();
        let job = self.facts.statements.get(&(qid, Pid(106))).and_then(|jobs| jobs.choose(rng));
        match (rng.random_range(0..20), job) {
            (0..8, _) if opens => Subject::They,
            (8..11, Some(&job)) => Subject::Name(format!("the {}", self.label(job))),
            (11..14, _) => Subject::Name(label.to_owned()),
            _ => Subject::Name(short),
        }
    }

    /// A true sentence that names another entity, so that not every name on a page is an answer.
    fn distractor(
        &self,
        qid: Qid,
        class: Class,
        inverse: &BTreeMap<Qid, BTreeMap<(Pid, Class), Vec<Qid>>>,
        rng: &mut ChaCha8Rng,
    ) -> Option<Line> {
        let mut line = Line::default();
        let own = inverse.get(&qid);
        if class == Class::Person {
            let followers = own.and_then(|i| i.get(&(Pid(737), Class::Person)));
            if let Some(followers) = followers {
                let named: Vec<Qid> = followers.iter().copied().take(3).collect();
                let lead = [
                    "Their ideas reached ",
                    "Among their readers was ",
                    "Their work mattered much to ",
                    "They had an effect on ",
                ];
                line.push(lead.choose(rng)?);
                line.list(&self.facts, Style::Plain, &named);
                line.push(".");
                return Some(line);
            }
            let short = names::surname(self.label(qid));
            let namesakes = short.and_then(|s| self.bearers.get(s)).filter(|who| who.len() > 1);
            if let Some(&other) = namesakes.and_then(|who| who.choose(rng)).filter(|o| **o != qid) {
                let lead = [
                    "Not to be confused with ",
                    "The name is shared with ",
                    "This is not ",
                    "Some readers mix up the name with ",
                ];
                line.push(lead.choose(rng)?);
                line.link(self.label(other), other);
                line.push(".");
                return Some(line);
            }
        }
        if class == Class::Thing {
            let who = own?.values().max_by_key(|who| who.len())?;
            let named: Vec<Qid> = who.choose_multiple(rng, 2.min(who.len())).copied().collect();
            let lead = [
                "Among others it is linked to ",
                "It comes up in the lives of ",
                "Readers meet it on the pages of ",
                "It is mentioned together with ",
            ];
            line.push(lead.choose(rng)?);
            line.list(&self.facts, Style::The, &named);
            line.push(".");
            return Some(line);
        }
        None
    }

    /// Bulleted lists: facts that the sentences leave out, and other pages that mention this entity.
    fn lists_of(
        &self,
        page: &mut Page,
        qid: Qid,
        class: Class,
        left_over: &[(Pid, Vec<Qid>)],
        own: Option<&BTreeMap<(Pid, Class), Vec<Qid>>>,
        rng: &mut ChaCha8Rng,
    ) {
        let bullet = |page: &mut Page, target: Qid| {
            let mut line = Line::default();
            line.push("BULLET::::- ");
            line.link(self.label(target), target);
            page.paragraph(&line);
        };
        for (pid, objects) in left_over {
            let label = names::capitalised(&self.facts.relations[pid].label);
            page.section(&format!("{label}, continued"));
            for &object in objects.iter().take(4) {
                bullet(page, object);
            }
        }
        if class == Class::Person {
            return;
        }
        for ((pid, of), who) in own.into_iter().flatten() {
            let Some(wording) = self.wordings.of(*pid, *of) else { continue };
            let mut named: Vec<Qid> =
                who.choose_multiple(rng, 6.min(who.len())).copied().filter(|w| *w != qid).collect();
            named.sort();
            page.section(wording.one("head"));
            for target in named {
                bullet(page, target);
            }
        }
    }

    fn categories(&self, qid: Qid, class: Class, entity: &Entity) -> Vec<String> {
        let stated = |p: u64| self.facts.statements.get(&(qid, Pid(p))).cloned().unwrap_or_default();
        let mut found: Vec<String> = Vec::new();
        match class {
            Class::Person => {
                found.extend(
                    stated(106).iter().take(3).map(|&o| format!("{}s", names::capitalised(self.label(o)))),
                );
                found.extend(stated(19).iter().map(|&o| format!("People from {}", self.label(o))));
                found.extend(stated(27).iter().take(2).map(|&o| format!("Citizens of {}", self.name(o))));
            }
            Class::Place => {
                found.extend(stated(30).iter().map(|&o| format!("Countries in {}", self.label(o))))
            }
            Class::Body => {
                found.extend(stated(17).iter().map(|&o| format!("Institutions of {}", self.name(o))))
            }
            Class::Thing => found.push(names::capitalised(&entity.kind)),
        }
        found.into_iter().map(|name| name.replace(',', "")).collect()
    }

    /// Pages that list the people with a surname, if there are at least three.
    fn name_pages(&mut self, count: usize) {
        let shared: Vec<(&String, &Vec<Qid>)> =
            self.bearers.iter().filter(|(_, who)| who.len() >= 3).collect();
        for (index, (alias, who)) in shared.into_iter().enumerate() {
            let id = (20_011 + 17 * (count + index)).to_string();
            let mut page = Page::new(id, format!("{alias} (disambiguation)"), None);
            let mut line = Line::default();
            line.push(&format!("The name {alias} can mean several things."));
            page.paragraph(&line);
            for &qid in who {
                let mut line = Line::default();
                line.push("BULLET::::- ");
                line.link(self.label(qid), qid);
                line.push(&format!(", {}", self.facts.entities[&qid].kind));
                page.paragraph(&line);
            }
            page.categories = vec!["Disambiguation pages".to_owned()];
            self.lists.push(page);
        }
    }
}

/// The first sentence of a page that is not about a person.
fn opening(entity: &Entity, name: &str, rng: &mut ChaCha8Rng) -> String {
    let templates = [
        "{S} is {k}.",
        "As a rule {s} is described as {k}.",
        "In this small encyclopedia {s} stands as {k}.",
        "{S} can be described as {k}.",
    ];
    let kinds: Vec<&String> = std::iter::once(&entity.kind).chain(&entity.over).collect();
    let named: Vec<String> = kinds.iter().map(|kind| format!("{}{kind}", names::indefinite(kind))).collect();
    let template = templates[rng.random_range(0..templates.len())];
    let text = template.replace("{s}", name).replace("{k}", &named.join(" and "));
    text.replace("{S}", &names::capitalised(name))
}

/// The random numbers of one stream under a seed.
fn stream_of(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// The split of a subject: 75 % train, 14 % dev, 11 % test, for each class separately.
fn partition(facts: &Facts, seed: u64) -> BTreeMap<Qid, Part> {
    let mut parts = BTreeMap::new();
    for (stream, class) in [Class::Person, Class::Place, Class::Body, Class::Thing].into_iter().enumerate() {
        let mut members: Vec<Qid> =
            facts.entities.keys().copied().filter(|&q| facts.class(q) == class).collect();
        members.shuffle(&mut stream_of(seed, 1 + stream as u64));
        let (dev, test) = (members.len() * 14 / 100, members.len() * 25 / 100);
        for (rank, qid) in members.into_iter().enumerate() {
            let part = match rank {
                r if class == Class::Thing || r >= test => Part::Train,
                r if r < dev => Part::Dev,
                _ => Part::Test,
            };
            parts.insert(qid, part);
        }
    }
    parts
}
