//! Embeddings and networks from the shell: training, search and scores over a small generated knowledge base.

use std::{fs, path::Path};

use crate::common::{errors, json, root, sporran};
use serde_json::Value;
use sporran_kilt::kb::{KnowledgeBase, Part};

/// Twelve entities on a circle with three relations. Every fifth triple is held out, with one negative for each.
fn circle(folder: &Path) -> String {
    let mut parts = [String::new(), String::new(), String::new()];
    let mut negatives = [String::new(), String::new()];
    for at in 0..12 {
        for (relation, by) in [("next", 1), ("skip", 2), ("back", 11)] {
            let line = |by: usize| format!("Q{at}\t{relation}\tQ{}\n", (at + by) % 12);
            let part = match (at * 3 + by) % 10 {
                4 => 1,
                9 => 2,
                _ => 0,
            };
            parts[part].push_str(&line(by));
            if part > 0 {
                negatives[part - 1].push_str(&line(by + 5));
            }
        }
    }
    let kb = folder.join("kb");
    fs::create_dir_all(&kb).unwrap();
    for (name, text) in ["train", "valid", "test"].iter().zip(&parts) {
        fs::write(kb.join(format!("{name}.txt")), text).unwrap();
    }
    for (name, text) in ["valid", "test"].iter().zip(&negatives) {
        fs::write(kb.join(format!("{name}_negatives.txt")), text).unwrap();
    }
    kb.display().to_string()
}

fn config(folder: &Path, kb: &str, more: &str) -> String {
    let path = folder.join("circle.toml");
    let text = format!(
        "workflow = \"link-prediction\"\nname = \"circle\"\noutput = \"{}\"\n[data]\nfolder = \"{kb}\"\n[embedding]\nmodel = \"complex\"\ndim = 24\n\
         initial = \"normal\"\ninitial-scale = 0.1\n[embedding.training]\nbatch-size = 16\nepochs = 40\n\
         regularizer = {{ entity = 0.02, relation = 0.02 }}\n{more}",
        folder.join("runs").display()
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_trained_embedding_ranks_and_classifies_triples() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let config = config(folder.path(), &kb, "");
    let trained = json(folder.path(), &["--quiet", "train", &config, "--json"]);
    assert!(trained["best"][1].as_f64().unwrap() > 0.3, "{trained}");
    // A finished training does not run again.
    assert_eq!(json(folder.path(), &["--quiet", "train", &config, "--json"]), trained);
    let model = trained["model"].as_str().unwrap();
    let scored = json(
        folder.path(),
        &["evaluate", "links", model, "--kb", &kb, "--part", "train", "--classification", "--json"],
    );
    assert_eq!(scored["part"], "train");
    assert!(scored["all"]["mrr"].as_f64().unwrap() > 0.9, "{scored}");
    assert_eq!(scored["relations"].as_object().unwrap().len(), 3);
    assert!(scored["classification"]["accuracy"].as_f64().unwrap() >= 0.5, "{scored}");
    let ranks = |part: &str| {
        json(folder.path(), &["evaluate", "links", model, "--kb", &kb, "--part", part, "--json"])["all"]
            ["ranks"]
            .as_u64()
            .unwrap()
    };
    let lines = |name: &str| fs::read_to_string(Path::new(&kb).join(name)).unwrap().lines().count() as u64;
    assert_eq!(ranks("test"), 2 * lines("test.txt"));
}

#[test]
fn a_search_keeps_its_best_trial() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let search = "[search]\ntrials = 3\n[[search.range]]\nkey = \"training.learning-rate\"\nlow = 0.0001\nhigh = 1.0\nlog = true\n";
    let config = config(folder.path(), &kb, search);
    let found = json(folder.path(), &["--quiet", "train", &config, "--json"]);
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3);
    let best = trials.iter().map(|trial| trial["best"][1].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(found["best"][1].as_f64(), Some(best));
    assert!(trials[1]["drawn"]["training.learning-rate"].is_f64());
    let log = fs::read_to_string(folder.path().join("runs/circle/search.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 3);
    json(folder.path(), &["evaluate", "links", found["model"].as_str().unwrap(), "--kb", &kb, "--json"]);
}

/// The answers of `sporran reason` to lines, its exit code and its messages.
fn reason(folder: &Path, arguments: &[&str], lines: &str) -> (Vec<Value>, Option<i32>, String) {
    let path = folder.join("reason.jsonl");
    fs::write(&path, lines).unwrap();
    let mut all = vec!["reason", "--json"];
    all.extend_from_slice(arguments);
    let output = sporran(folder, &all).stdin(fs::File::open(path).unwrap()).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let answers = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (answers, output.status.code(), errors(&output))
}

#[test]
fn answers_of_a_network_and_of_rules_have_supporting_triples() {
    let folder = tempfile::tempdir().unwrap();
    // People speak the language of their birthplace; for some people the triple is missing.
    let mut train: String = (0..3).map(|at| format!("t{at}\tlanguage\tl{at}\n")).collect();
    for at in 0..33 {
        train.push_str(&format!("p{at}\tborn\tt{}\n", at % 3));
        if at < 30 {
            train.push_str(&format!("p{at}\tspeaks\tl{}\n", at % 3));
        }
    }
    let kb = folder.path().join("kb");
    fs::create_dir(&kb).unwrap();
    fs::write(kb.join("train.txt"), train).unwrap();
    fs::write(kb.join("valid.txt"), "p30\tspeaks\tl0\np31\tspeaks\tl1\n").unwrap();
    fs::write(kb.join("test.txt"), "p32\tspeaks\tl2\n").unwrap();
    let network = "workflow = \"graph-network\"\nname = \"n\"\n[data]\nfolder = \"kb\"\n[network]\nlayers = 2\n[network.training]\nbatch-size = 8\nepochs = 8\n";
    fs::write(folder.path().join("network.toml"), network).unwrap();
    let rules = "workflow = \"rules\"\nname = \"r\"\nkb = \"kb\"\n[rules]\nbatch = 500\nbatches = 12\n";
    fs::write(folder.path().join("rules.toml"), rules).unwrap();
    let trained = json(folder.path(), &["--quiet", "train", "network.toml", "--json"]);
    json(folder.path(), &["--quiet", "train", "rules.toml", "--json"]);
    let model = trained["model"].as_str().unwrap();
    let scored = json(folder.path(), &["evaluate", "links", model, "--kb", "kb", "--json"]);
    assert!(scored["objects"]["mrr"].as_f64().unwrap() > 0.9, "{scored}");

    let lines =
        "{\"subject\":\"p32\",\"relation\":\"speaks\"}\n{\"relation\":\"language\",\"object\":\"l1\"}\n";
    let walk = serde_json::json!([["p32", "born", "t2"], ["t2", "language", "l2"]]);
    let rules = "runs/r/rules.tsv";
    for arguments in [
        &["--kb", "kb", "--links", model, "--answers", "2"][..],
        &["--kb", "kb", "--rules", rules, "--answers", "2"],
        &["--kb", "kb", "--links", model, "--rules", rules, "--answers", "2"],
    ] {
        let (answers, code, message) = reason(folder.path(), arguments, lines);
        assert_eq!((answers.len(), code), (2, Some(0)), "{message}");
        let best = &answers[0]["answers"][0];
        assert_eq!(best["entity"], "l2", "{arguments:?} {answers:?}");
        let chains = best["chains"].as_array().unwrap();
        assert!(chains.iter().any(|chain| chain["triples"] == walk), "{arguments:?} {best}");
        let has_rule = chains.iter().any(|chain| chain["rule"] == "speaks(X,Y) <= born(X,A), language(A,Y)");
        assert_eq!(has_rule, arguments.contains(&"--rules"), "{best}");
        // Answers that are training triples are left out without `--known`.
        let others = answers[1]["answers"].as_array().unwrap();
        assert!(others.iter().all(|answer| answer["entity"] != "t1"), "{others:?}");
    }
    let (answers, ..) = reason(folder.path(), &["--kb", "kb", "--links", model, "--known"], lines);
    assert_eq!(answers[1]["answers"][0]["entity"], "t1", "{answers:?}");

    for (line, expected) in [
        ("{\"subject\":\"p99\",\"relation\":\"speaks\"}", "`subject`: the knowledge base has no `p99`"),
        ("{\"subject\":\"p1\",\"relation\":\"sings\"}", "`relation`: the knowledge base has no `sings`"),
        ("{\"relation\":\"speaks\"}", "expected either `subject` or `object`"),
        ("{\"subject\":\"p1\"}", "missing field `relation`"),
    ] {
        let lines = format!("{{\"subject\":\"p32\",\"relation\":\"speaks\"}}\n{line}\n");
        let (answers, code, message) = reason(folder.path(), &["--kb", "kb", "--links", model], &lines);
        assert_eq!((answers.len(), code), (1, Some(2)), "{message}");
        assert!(message.contains("standard input:2: ") && message.contains(expected), "{message}");
    }
    let (_, code, message) = reason(folder.path(), &["--kb", "kb"], "");
    assert!(code == Some(2) && message.contains("expected a model or rules"), "{message}");
}

#[test]
fn the_bundled_embedding_and_rules_fit_the_bundled_knowledge_base() {
    let kb = KnowledgeBase::open(root().join("examples/minikilt/kb")).unwrap();
    // Citizenships of every tenth person.
    let citizen = kb.relation("P27").unwrap();
    let known =
        kb.triples(Part::Train).iter().filter(|triple| triple.relation == citizen).step_by(10).take(20);
    let known: Vec<(&str, &str)> =
        known.map(|triple| (kb.entity_name(triple.subject), kb.entity_name(triple.object))).collect();
    let lines: String = known
        .iter()
        .map(|(subject, _)| format!("{{\"subject\":\"{subject}\",\"relation\":\"P27\"}}\n"))
        .collect();
    let folder = root().join("models/minikilt-kb").display().to_string();
    let rules = format!("{folder}/rules.tsv.gz");
    let kb_folder = root().join("examples/minikilt/kb").display().to_string();
    let call = ["--kb", &kb_folder, "--links", &folder, "--rules", &rules, "--known", "--answers", "3"];
    let work = tempfile::tempdir().unwrap();
    let (answers, code, message) = reason(work.path(), &call, &lines);
    assert_eq!((answers.len(), code), (20, Some(0)), "{message}");
    let (mut right, mut explained) = (0, 0);
    for ((_, object), answers) in known.iter().zip(&answers) {
        let answers = answers["answers"].as_array().unwrap();
        right += usize::from(answers.iter().any(|answer| answer["entity"] == *object));
        for chain in answers.iter().flat_map(|answer| answer["chains"].as_array().unwrap()) {
            assert!(chain["rule"].as_str().unwrap().starts_with("P27("), "{chain}");
            for (names, labels) in
                chain["triples"].as_array().unwrap().iter().zip(chain["labels"].as_array().unwrap())
            {
                let relation = kb.relation(names[1].as_str().unwrap()).unwrap();
                assert_eq!(labels[1], kb.relation_label(relation), "{chain}");
                explained += 1;
            }
        }
    }
    assert!(right >= 18 && explained >= 20, "{right} right, {explained} explained");
    assert_eq!(answers[0]["answers"][0]["label"], label(&kb, &answers[0]["answers"][0]), "{answers:?}");
}

/// The label of an answer's entity in the knowledge base.
fn label(kb: &KnowledgeBase, answer: &Value) -> String {
    let id = kb.entity(answer["entity"].as_str().unwrap()).unwrap();
    let label = kb.label(id);
    assert_ne!(label, kb.entity_name(id));
    label.to_owned()
}

#[test]
fn errors_have_exit_code_2_and_name_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let config = config(folder.path(), &kb, "");
    let fails = |arguments: &[&str], expected: &str| {
        let output = sporran(folder.path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    };
    fails(&["train", &config, "embedding.dim=3"], "`embedding.dim`: expected an even number, found 3");
    fails(&["evaluate", "links", "nowhere", "--kb", &kb], "nowhere");
    let committed = root().join("configs/kge/codex-s-complex.toml").display().to_string();
    let arguments = ["config", "check", &committed, &format!("data.folder={kb}")];
    let checked = sporran(folder.path(), &arguments).output().unwrap();
    assert!(checked.status.success(), "{}", errors(&checked));
    fails(&["config", "check", &committed, "data.folder=nowhere"], "`data.folder`: no folder nowhere");
    fs::write(Path::new(&kb).join("valid.txt"), "Q1\tnext\n").unwrap();
    fails(&["train", &config], "valid.txt:1: expected a subject, a relation and an object");
    assert!(!folder.path().join("runs").exists());
}
