//! A small dataset of pages and tasks, generated from facts and templates. The same facts and seed give the same bytes.

mod extra;
pub(crate) mod facts;
mod hotpot;
mod line;
mod linking;
mod long;
mod names;
mod page;
mod questions;
mod records;
pub(crate) mod wording;
pub(crate) mod world;

use serde_json::{Value, json};

pub(crate) use records::File;

use linking::Source;
use records::{Size, lines, task_files};
use world::{Part, World};

/// Every file of the data, by name.
///
/// # Errors
/// Compression that fails.
pub(crate) fn make(world: &World) -> std::io::Result<Vec<File>> {
    let pages =
        world.pages.values().chain(&world.lists).map(|page| records::page(world, page)).collect::<Vec<_>>();
    let redirects: String =
        world.redirects.iter().map(|(alias, title)| format!("{alias}\t{title}\n")).collect();
    let mut files = vec![
        File::new("knowledge_source.jsonl.gz", &lines(&pages))?,
        File::new("redirects.tsv", &redirects)?,
        File::new("facts.tsv", &world.facts.to_tsv())?,
    ];
    files.extend(extra::knowledge_base(world)?);
    let size = |train| Size { train, dev: 160, test: 100 };
    for part in Part::ALL {
        let mut stream = 10_000 * (1 + part as u64);
        let mut rng = || {
            stream += 1;
            world.rng(stream)
        };
        let mut add = |stem: &str, tag: &str, records: Vec<Value>| -> std::io::Result<()> {
            files.extend(task_files(stem, tag, part, &records)?);
            Ok(())
        };
        add("fever", "", questions::fever(world, part, size(2_500).of(part), &mut rng()))?;
        add("aidayago2", "", linking::linking(world, Source::Aida, part, size(2_200).of(part), &mut rng()))?;
        if part != Part::Train {
            add("wned", "", linking::linking(world, Source::Wned, part, size(0).of(part), &mut rng()))?;
            add("cweb", "", linking::linking(world, Source::Cweb, part, size(0).of(part), &mut rng()))?;
        }
        add("trex", "", questions::trex(world, part, size(2_400).of(part), &mut rng()))?;
        add("structured_zeroshot", "", questions::zero_shot(world, part, size(2_200).of(part), &mut rng()))?;
        add("nq", "", questions::nq(world, part, size(2_400).of(part), &mut rng()))?;
        add("hotpotqa", "", hotpot::hotpotqa(world, part, size(2_000).of(part), &mut rng()))?;
        let (trivia, originals) = questions::triviaqa(world, part, size(2_200).of(part), &mut rng());
        add("triviaqa", "_id", trivia)?;
        add("eli5", "", long::eli5(world, part, size(1_500).of(part), &mut rng()))?;
        add("wow", "", long::wow(world, part, size(2_000).of(part), &mut rng()))?;
        let original = json!({"Data": originals, "Domain": "Web", "Split": part.name(), "VerifiedEval": false, "Version": 1.0});
        let (name, end) = match part {
            Part::Train => ("train", ".gz"),
            Part::Dev => ("dev", ""),
            Part::Test => ("test-without-answers", ""),
        };
        files.push(File::new(format!("triviaqa/unfiltered-web-{name}.json{end}"), &format!("{original}\n"))?);
        let count = if part == Part::Train { 40 } else { 20 };
        let dialogues = extra::wowpp(world, part, count, &mut rng());
        files.push(File::new(format!("wowpp/{}.json", part.name()), &format!("{dialogues}\n"))?);
    }
    files.extend(extra::knowledgenet(world, &mut world.rng(50_001))?);
    files.extend(extra::korc(world, &mut world.rng(50_002))?);
    Ok(files)
}
