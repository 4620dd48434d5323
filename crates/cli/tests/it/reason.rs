//! Rules and questions over a knowledge base from the shell.

use std::{fs, path::Path};

use crate::common::{errors, root, sporran};
use serde_json::Value;

fn stdout(folder: &Path, arguments: &[&str]) -> String {
    let output = sporran(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_bundled_reasoner_answers_with_the_span_and_the_triples() {
    let folder = tempfile::tempdir().unwrap();
    let runs = format!("output={}", folder.path().display());
    let config = "configs/quickstart-reason.toml";
    let printed = stdout(&root(), &["--quiet", "reason", config, "--json", &runs, "data.limit=6"]);
    let records: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 12);
    let tests = ["small_iid_test", "small_ood_test"].map(|name| {
        let path = root().join("examples/korc").join(format!("{name}.json"));
        serde_json::from_slice::<Vec<Value>>(&fs::read(path).unwrap()).unwrap()
    });
    let questions: Vec<&Value> = tests.iter().flat_map(|test| &test[..6]).collect();
    let mut shown = 0;
    for (record, question) in records.iter().zip(questions) {
        assert_eq!(record["id"], question["id"]);
        assert_eq!(record["meta"]["steps"].as_array().unwrap().len(), 2);
        let [output] = &record["output"].as_array().unwrap()[..] else { panic!("{record}") };
        // The question names the provenance of its document.
        assert_eq!(output["provenance"][0], question["provenance"][0]);
        let answers = record["meta"]["answers"].as_array().unwrap();
        let texts: Vec<&str> = answers.iter().map(|answer| answer["answer"].as_str().unwrap()).collect();
        assert_eq!(output["answer"], texts.join(", "));
        for answer in answers {
            assert!((0.0..=1.0).contains(&answer["confidence"].as_f64().unwrap()));
            let Some(bridge) = answer.get("bridge") else { continue };
            let place = |key: &str| bridge[key].as_u64().unwrap() as usize;
            let (start, end) = (place("start"), place("end"));
            let span: String =
                question["context"].as_str().unwrap().chars().skip(start).take(end - start).collect();
            assert_eq!(bridge["text"], span);
            // The path ends with the answer.
            let triples = answer["triples"].as_array().unwrap();
            let last = triples[triples.len() - 1]["ids"].as_array().unwrap();
            assert!(last.contains(&answer["wikidata_id"]), "{answer}");
            shown += 1;
        }
    }
    assert!(shown >= 6, "{shown}");
    let run = folder.path().join("quickstart-reason");
    let sets = run.join("answer-sets/small_ood_test.jsonl").display().to_string();
    let report: Value = serde_json::from_slice(&fs::read(run.join("report.json")).unwrap()).unwrap();
    let scored: Value =
        serde_json::from_str(&stdout(&root(), &["evaluate", "answer-sets", &sets, "--json"])).unwrap();
    let p_f1 = |scores: &Value| scores["p_f1"].as_f64().unwrap();
    assert!((p_f1(&report["tests"][1]["scores"]) - p_f1(&scored)).abs() < 1e-9, "{report} {scored}");
}

#[test]
fn the_bundled_embed_kgqa_answers_most_questions_correctly() {
    let folder = tempfile::tempdir().unwrap();
    let runs = format!("output={}", folder.path().display());
    let model = ["reasoner.kind=embed-kgqa", "reasoner.model=models/minikilt-embed-kgqa", "data.limit=20"];
    let call = [&["--quiet", "reason", "configs/quickstart-reason.toml", &runs], &model[..]].concat();
    stdout(&root(), &call);
    let path = folder.path().join("quickstart-reason/report.json");
    let report: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let score = |test: usize| report["tests"][test]["scores"]["p_f1"].as_f64().unwrap();
    assert!(score(0) > 0.5 && score(1) > 0.3, "{report}");
    // The kind must be that of the model.
    let call = ["reason", "configs/quickstart-reason.toml", &runs, "name=x", model[1]];
    let output = sporran(&root(), &call).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains("`reasoner.kind`") && message.contains("is of kind `embed-kgqa`"), "{message}");
    // The model must be there.
    let call = ["reason", "configs/quickstart-reason.toml", &runs, "name=y", "reasoner.model=none"];
    let output = sporran(&root(), &call).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains("no folder none; `sporran train` creates it"), "{message}");
}

#[test]
fn a_decoder_only_model_answers_with_demonstrations() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    let text = "workflow = \"kbqa\"\nname = \"shown\"\nkb = \"examples/minikilt/kb/triples.tsv.gz\"\n\
        [data]\niid = \"examples/korc/small_iid_test.json\"\nlimit = 3\n\
        [reasoner]\nkind = \"causal\"\nmodel = \"crates/transformers/tests/data/llama\"\nmax-tokens = 200\n\
        prompt.input = \"Text: {input}\"\ngeneration.max-new-tokens = 4\n\
        demonstrations = { files = [\"examples/korc/small_ood_test.json\"], count = 2 }\n";
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let runs = format!("output={}", folder.path().display());
    let printed = stdout(&root(), &["--quiet", "reason", &config, "--json", &runs]);
    let records: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 3);
    for answer in records.iter().flat_map(|record| record["meta"]["answers"].as_array().unwrap()) {
        assert!((0.0..=1.0).contains(&answer["confidence"].as_f64().unwrap()), "{answer}");
    }
    let message = |more: &[&str]| {
        let output = sporran(&root(), &[&["--quiet"], more, &[&*runs]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    let trained = message(&["train", &config, "data.train=['examples/korc/small_ood_test.json']"]);
    assert!(trained.contains("`causal` is not trained"), "{trained}");
    let missing = message(&["reason", &config, "reasoner.demonstrations.files=['none.json']"]);
    assert!(missing.contains("`reasoner.demonstrations.files`: no file none.json"), "{missing}");
}

#[test]
fn a_model_reads_retrieved_passages_with_document_and_question() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    let (indexes, model) = (folder.path().join("indexes"), folder.path().join("model"));
    let text = format!(
        "workflow = \"kbqa\"\nname = \"passages\"\nkb = \"examples/minikilt/kb/triples.tsv.gz\"\noutput = \"{}\"\n\
        [data]\ntrain = [\"examples/korc/small_ood_test.json\"]\niid = \"examples/korc/small_iid_test.json\"\nlimit = 4\n\
        [source]\npath = \"examples/minikilt/knowledge_source.jsonl.gz\"\nindexes = \"{}\"\n[retriever]\nkind = \"bm25\"\n\
        [reasoner]\nkind = \"rag-token\"\nmodel = \"{}\"\npassages = 2\npassage-words = 20\nmax-tokens = 120\nanswer-tokens = 4\n\
        shape = {{ d-model = 16, d-ff = 32, d-kv = 8, heads = 2, encoder-layers = 1, decoder-layers = 1, vocabulary = 600 }}\n\
        optimizer = {{ steps = 2, warmup-steps = 1, tokens-per-batch = 2000 }}\n",
        folder.path().display(),
        indexes.display(),
        model.display()
    );
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    stdout(&root(), &["--quiet", "train", &config]);
    for kind in ["rag-token", "rag-sequence"] {
        let kind = format!("reasoner.kind={kind}");
        let printed = stdout(&root(), &["--quiet", "reason", &config, "--json", &kind]);
        let records: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 4);
        for record in &records {
            // The document's page, then the two passages that were read.
            let provenance = record["output"][0]["provenance"].as_array().unwrap();
            assert!((2..=3).contains(&provenance.len()), "{record}");
            assert!(provenance.iter().all(|item| item["wikipedia_id"].is_string()), "{record}");
        }
    }
    // Runs over questions get the tables of KoRC's paper.
    let run = folder.path().join("passages").display().to_string();
    let table = stdout(&root(), &["report", &run, "--form", "markdown"]);
    assert!(table.contains("| P-F1 mean |") && table.contains("| passages |"), "{table}");
    let output = sporran(&root(), &["reason", &config, "retriever.kind=none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

#[test]
fn rag_trains_the_question_encoder_of_its_retriever() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let models = root().join("crates/transformers/tests/data");
    let (bart, encoder) = (models.join("bart"), models.join("encoders/bert-sequence"));
    let known = [("king", "book"), ("queen", "song"), ("president", "film"), ("author", "city")];
    let page = |(at, (who, what)): (usize, &(&str, &str))| {
        format!(
            r#"{{"wikipedia_id":"{at}","wikipedia_title":"{who}","text":["{who}","The {who} wrote the {what}."]}}"#
        )
    };
    let pages: Vec<String> = known.iter().enumerate().map(page).collect();
    fs::write(path("pages.jsonl"), pages.join("\n")).unwrap();
    let question = |(at, (who, what)): (usize, &(&str, &str))| {
        serde_json::json!({ "id": at, "question": "What?", "context": format!("the {who}"), "answers": [what],
            "answer_ids": [format!("Q{at}")], "topic_entity": ["Q9"] })
    };
    let questions: Vec<Value> = known.iter().enumerate().map(question).collect();
    fs::write(path("q.json"), serde_json::to_string(&questions).unwrap()).unwrap();
    for kind in ["rag-token", "rag-sequence"] {
        let config = path("c.toml");
        let (model, written) = (path(&format!("{kind}-model")), path(&format!("{kind}-questions")));
        let text = format!(
            "workflow = 'kbqa'\nname = '{kind}'\nkb = 'examples/minikilt/kb/triples.tsv.gz'\noutput = '{}'\n\
            [data]\ntrain = ['{file}']\nvalid = '{file}'\niid = '{file}'\n\
            [source]\npath = '{}'\nindexes = '{}'\n\
            [retriever]\nkind = 'dense'\nmodel = '{written}'\npassage-model = '{encoder}'\npooling = 'mean'\nsimilarity = 'inner-product'\n\
            [reasoner]\nkind = '{kind}'\nmodel = '{model}'\nfrom = '{}'\nquestion-encoder = '{encoder}'\npassages = 2\n\
            max-tokens = 40\nanswer-tokens = 4\nbeams = 2\n\
            optimizer = {{ steps = 3, warmup-steps = 1, tokens-per-batch = 400, learning-rate = 1e-3 }}\n",
            folder.path().display(),
            path("pages.jsonl"),
            path("indexes"),
            bart.display(),
            file = path("q.json"),
            encoder = encoder.display(),
        );
        fs::write(&config, text).unwrap();
        let trained: Value =
            serde_json::from_str(&stdout(&root(), &["--quiet", "train", &config, "--json"])).unwrap();
        assert_eq!(trained["steps"], 3, "{trained}");
        assert!((0.0..=1.0).contains(&trained["valid"].as_f64().unwrap()), "{trained}");
        let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
        assert_ne!(weights(Path::new(&written)), weights(&encoder));
        assert_ne!(weights(Path::new(&model)), weights(&bart));
        // A run retrieves with the trained encoder, over the vectors of the training.
        let printed = stdout(&root(), &["--quiet", "reason", &config, "--json"]);
        assert_eq!(printed.lines().count(), 4);
        let output = sporran(&root(), &["train", &config, "retriever.similarity=cosine"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(
            errors(&output).contains("`retriever.similarity`: expected `inner-product`"),
            "{}",
            errors(&output)
        );
    }
    let text = fs::read_to_string(path("c.toml")).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("from = ")).collect();
    fs::write(path("c.toml"), without.join("\n")).unwrap();
    let output = sporran(&root(), &["train", &path("c.toml")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("`reasoner.from`: is missing"), "{}", errors(&output));
}

#[test]
fn rules_are_mined_and_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let triples = |range: std::ops::Range<u32>, speaks: bool| -> String {
        let people = range.map(|at| {
            let spoken = if speaks { format!("p{at}\tspeaks\tl{}\n", at % 3) } else { String::new() };
            format!("p{at}\tborn\tt{}\n{spoken}", at % 3)
        });
        people.collect()
    };
    let towns: String = (0..3).map(|at| format!("t{at}\tlanguage\tl{at}\n")).collect();
    let kb = folder.path().join("kb");
    fs::create_dir(&kb).unwrap();
    fs::write(kb.join("train.txt"), format!("{}{}{towns}", triples(0..30, true), triples(30..33, false)))
        .unwrap();
    fs::write(kb.join("test.txt"), "p30\tspeaks\tl0\np31\tspeaks\tl1\n").unwrap();
    let config = folder.path().join("c.toml");
    fs::write(
        &config,
        "workflow = \"rules\"\nname = \"r\"\nkb = \"kb\"\n[rules]\nbatch = 500\nbatches = 12\n",
    )
    .unwrap();
    let mined: Value =
        serde_json::from_str(&stdout(folder.path(), &["--quiet", "train", "c.toml", "--json"])).unwrap();
    // Every town has one language, so that objects are sure; a language is spoken by one known person more.
    assert!(mined["test"]["mrr"].as_f64().unwrap() > 0.9, "{mined}");
    let rules = fs::read_to_string(folder.path().join("runs/r/rules.tsv")).unwrap();
    assert!(rules.contains("speaks(X,Y) <= born(X,A), language(A,Y)"), "{rules}");
    let output = sporran(folder.path(), &["train", "c.toml", "rules.cyclic-length=4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(
        message.contains("`rules.cyclic-length`: expected a whole number from 1 to 3, found 4"),
        "{message}"
    );
}

/// Ten DocRED documents about two capitals, with a knowledge base, a rule by a person, and a config.
fn small_benchmark(folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    fs::create_dir(folder.join("kb")).unwrap();
    write(
        "kb/train.txt",
        "Q1\tP2\tQ0\nQ5\tP2\tQ4\nQ1\tP3\tQ2\nQ1\tP3\tQ3\nQ5\tP3\tQ6\nQ5\tP3\tQ7\nQ8\tP4\tQ9\n",
    );
    let names = ["Paris", "France", "Castex", "Borne", "Rome", "Italy", "Meloni", "Draghi", "Oslo", "Store"];
    let rows: String = names.iter().enumerate().map(|(at, name)| format!("Q{at}\t{name}\tthing\n")).collect();
    write("entities.tsv", &format!("id\tlabel\ttype\n{rows}"));
    write("relations.tsv", "id\tlabel\nP2\tcapital\nP3\tprime minister\nP4\thead of government\n");
    write("rules.txt", "head of government(X,Y) <- capital(A,X), prime minister(A,Y)\t0.5\n");
    let vertex = |name: &str, sentence: usize, at: usize| serde_json::json!([{ "name": name, "sent_id": sentence, "pos": [at, at + 1], "type": "LOC" }]);
    let documents: Vec<Value> = (0..10)
        .map(|at| match at % 2 {
            0 => serde_json::json!({ "title": "News", "labels": [{ "h": 1, "t": 0, "r": "P2" }],
                "sents": [["Paris", "is", "in", "France", "."], ["Castex", "left", "."]],
                "vertexSet": [vertex("Paris", 0, 0), vertex("France", 0, 3), vertex("Castex", 1, 0)] }),
            _ => serde_json::json!({ "title": "News", "labels": [{ "h": 1, "t": 0, "r": "P2" }],
                "sents": [["Rome", "is", "in", "Italy", "."]],
                "vertexSet": [vertex("Rome", 0, 0), vertex("Italy", 0, 3)] }),
        })
        .collect();
    write("documents.json", &Value::Array(documents).to_string());
    write(
        "c.toml",
        "workflow = \"kbqa-benchmark\"\noutput = \"out\"\nkb = \"kb\"\nrelations = \"relations.tsv\"\nrule-files = [\"rules.txt\"]\n\
         [entities]\ntables = [\"entities.tsv\"]\n[documents]\nkind = \"docred\"\npath = \"documents.json\"\n[rules]\nbatches = 0\n",
    );
}

fn questions(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_benchmark_of_a_rule_by_a_person_is_built_described_and_scored_by_relation() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    small_benchmark(folder);
    let built: Value =
        serde_json::from_str(&stdout(folder, &["--quiet", "convert", "korc", "c.toml", "--json"])).unwrap();
    // Each document has one question with the prime ministers whom it does not mention.
    assert_eq!(
        (&built["all"]["questions"], &built["splits"][0]["questions"]),
        (&10.into(), &5.into()),
        "{built}"
    );
    assert_eq!((built["all"]["hops"].as_f64(), &built["all"]["relations"]), (Some(2.0), &1.into()));
    let rules = fs::read_to_string(folder.join("out/rules.tsv")).unwrap();
    assert_eq!(rules, "0\t0\t0.5\tP4(X,Y) <= P2(A,X), P3(A,Y)\n");
    let files = ["train", "valid", "small_iid_test", "small_ood_test"].map(|name| format!("out/{name}.json"));
    for question in files.iter().flat_map(|file| questions(&folder.join(file))) {
        let is_french = question["topic_entity"][0] == "Q0";
        let answers =
            if is_french { serde_json::json!(["Borne"]) } else { serde_json::json!(["Meloni", "Draghi"]) };
        assert_eq!((&question["answers"], &question["relation"]), (&answers, &"P4".into()), "{question}");
    }
    let call = [&["--quiet", "describe"][..], &files.each_ref().map(String::as_str), &["--json"]].concat();
    let described: Value = serde_json::from_str(&stdout(folder, &call)).unwrap();
    assert_eq!((&described["layout"], &described["all"]), (&"korc".into(), &built["all"]));
    assert_eq!(described["splits"], built["splits"]);
    assert_eq!(described["prefixes"][0]["version"], "template");

    let train = questions(&folder.join("out/train.json"));
    let sets: String = train
        .iter()
        .map(|it| serde_json::json!({ "id": it["id"], "answers": it["answers"], "predictions": it["answers"] }))
        .map(|set| format!("{set}\n"))
        .collect();
    fs::write(folder.join("sets.jsonl"), &sets).unwrap();
    let call =
        ["--quiet", "evaluate", "answer-sets", "sets.jsonl", "--relations", "out/train.json", "--json"];
    let scored: Value = serde_json::from_str(&stdout(folder, &call)).unwrap();
    let relation = &scored["by_relation"]["relations"][0];
    assert_eq!((&relation["relation"], &relation["questions"]), (&"head of government".into(), &5.into()));
    assert_eq!(relation["p_f1"], scored["p_f1"]);
    let call = ["evaluate", "answer-sets", "sets.jsonl", "--relations", "out/valid.json"];
    let output = sporran(folder, &call).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`train-0`"), "{}", errors(&output));

    let wrong =
        sporran(folder, &["convert", "korc", "c.toml", "rule-files=['none']", "documents.hyperlinks='none'"])
            .output()
            .unwrap();
    let message = errors(&wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(message.contains("`rule-files`: no file none"), "{message}");
    assert!(message.contains("`documents.hyperlinks`: no file none"), "{message}");
}

#[test]
fn a_language_model_writes_questions_which_are_inspected() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    small_benchmark(folder);
    let model = format!("phrasing.model='{}'", root().join("crates/transformers/tests/data/llama").display());
    let shown = format!("phrasing.demonstrations='{}'", root().join("configs/korc/phrasing.json").display());
    let more = ["phrasing.max-tokens=200", "phrasing.generation.max-new-tokens=4"];
    let call = [&["--quiet", "convert", "korc", "c.toml", "--json", &*model, &*shown][..], &more].concat();
    let built: Value = serde_json::from_str(&stdout(folder, &call)).unwrap();
    let mut passed = 0;
    for name in ["train", "valid", "small_iid_test", "small_ood_test"] {
        for question in questions(&folder.join(format!("out/{name}.json"))) {
            let written = question["gpt_best_question"].as_str().unwrap();
            assert!(written.contains("[thing "), "{question}");
            if question.get("rejected_question").is_some() {
                assert_eq!(question["template_question"], written);
            } else {
                passed += 1;
            }
        }
    }
    assert_eq!(built["phrased"], passed);
}

#[test]
fn the_version_of_questions_is_an_option_and_must_be_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let runs = format!("output={}", folder.path().display());
    let call = ["--quiet", "reason", "configs/quickstart-reason.toml", &*runs, "data.limit=2"];
    let printed = stdout(&root(), &[&call[..], &["--json", "data.version=template"]].concat());
    let asked = questions(&root().join("examples/korc/small_iid_test.json"));
    let first: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!(first["input"], asked[0]["template_question"]);
    let output = sporran(&root(), &[&call[..], &["data.version=llm"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(
        message.contains("small_iid_test.json:") && message.contains("[0].gpt_best_question"),
        "{message}"
    );
    let output = sporran(&root(), &[&call[..], &["data.train-share=0"]].concat()).output().unwrap();
    assert!(errors(&output).contains("`data.train-share`"), "{}", errors(&output));
}

#[test]
fn mistakes_in_a_benchmark_config_name_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    fs::write(&config, "workflow = \"kbqa-benchmark\"\noutput = \"o\"\nkb = \"none\"\n[documents]\nkind = \"page\"\npath = \"p\"\n")
        .unwrap();
    let output = sporran(folder.path(), &["convert", "korc", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("did you mean `pages`?"), "{}", errors(&output));
    let output =
        sporran(folder.path(), &["convert", "korc", "c.toml", "documents.kind=pages"]).output().unwrap();
    let message = errors(&output);
    assert!(
        message.contains("`kb`: no file none") && message.contains("`documents.path`: no file p"),
        "{message}"
    );
}

#[test]
fn run_accepts_kbqa_configs_directly_and_in_also() {
    let folder = tempfile::tempdir().unwrap();
    let runs = format!("output={}", folder.path().display());
    let report: Value = serde_json::from_str(&stdout(
        &root(),
        &["--quiet", "run", "configs/quickstart-reason.toml", "--json", &runs, "data.limit=2"],
    ))
    .unwrap();
    assert_eq!(report["tests"][0]["questions"], 2);
    let whole = [
        "--quiet",
        "run",
        "configs/quickstart.toml",
        "--json",
        &runs,
        "tasks.limit=1",
        "tasks.datasets=[\"nq\"]",
        "then=[\"configs/quickstart-reason.toml\"]",
    ];
    let report: Value = serde_json::from_str(&stdout(&root(), &whole)).unwrap();
    assert_eq!(
        (report["tasks"].as_array().map(Vec::len), report["also"][0]["tests"][0]["questions"].as_u64()),
        (Some(1), Some(60))
    );
    assert!(folder.path().join("quickstart-reason/predictions/small_ood_test.jsonl").is_file());
    // A config that only trains a model is an error in `run` and in `also`.
    let output = sporran(&root(), &["run", "configs/rules/codex-s.toml", &runs]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("only trains a model; use `sporran train`"), "{}", errors(&output));
    let wrong = "then=[\"configs/rules/codex-s.toml\", \"none.toml\"]";
    let output = sporran(&root(), &["run", "configs/quickstart.toml", &runs, wrong]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    for expected in ["`then`: expected a config that `sporran run` runs without tasks", "none.toml"] {
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
}
