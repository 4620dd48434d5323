//! Runs' folders: changed options, killed runs, folders in use.

use std::{
    fs,
    path::Path,
    process::Child,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{errors, root, sporran};

/// Runs the program in the repository's root and returns its exit code, standard output and standard error.
fn call(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = sporran(&root(), arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), errors(&output))
}

/// Waits until `is_there` is true, then kills the program.
fn kill_when(mut child: Child, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(child.try_wait().unwrap().is_none(), "the program was done too soon");
        assert!(start.elapsed() < Duration::from_secs(300), "nothing to wait for");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count())
}

/// The names below a folder that only a killed process leaves.
fn leftovers(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') {
            found.push(name);
        } else if path.is_dir() {
            found.extend(leftovers(&path));
        }
    }
    found
}

#[test]
fn a_change_of_precision_extracts_the_facts_again() {
    let place = tempfile::tempdir().unwrap();
    let output = format!("output={}", place.path().display());
    let run = |more: &[&str]| {
        let call = [&["-q", "populate", "configs/quickstart-kbp.toml", &output], more].concat();
        let (code, _, errors) = self::call(&call);
        assert_eq!(code, Some(0), "{errors}");
    };
    let facts = |name: &str| fs::read(place.path().join(name).join("predictions/train.jsonl")).unwrap();
    run(&[]);
    let first = facts("quickstart-kbp");
    run(&["relations.precision=int8"]);
    run(&["relations.precision=int8", "name=fresh"]);
    assert!(facts("quickstart-kbp") == facts("fresh") && facts("fresh") != first);
    run(&[]);
    assert!(facts("quickstart-kbp") == first);
}

#[test]
fn scoring_an_unfinished_run_is_an_error_until_it_is_resumed() {
    let place = tempfile::tempdir().unwrap();
    let (output, indexes) = (
        format!("output={}", place.path().display()),
        format!("source.indexes={}", place.path().join("indexes").display()),
    );
    let arguments = [
        "-q",
        "run",
        "configs/quickstart.toml",
        &output,
        &indexes,
        "tasks.datasets=[\"fever\", \"nq\"]",
        "then=[]",
    ];
    let folder = place.path().join("quickstart");
    // Files come in the order of KILT's tables.
    let journal = folder.join("work/fever-dev-kilt.jsonl.journal");
    kill_when(sporran(&root(), &arguments).spawn().unwrap(), || lines(&journal) > 0);
    let guess = folder.join("predictions/fever-dev-kilt.jsonl").display().to_string();
    let gold = "examples/minikilt/kilt/fever-dev-kilt.jsonl";
    let run = folder.display().to_string();
    let predictions = folder.join("predictions").display().to_string();
    for arguments in [
        &["evaluate", "kilt", "--gold", gold, "--guess", &guess][..],
        &["report", &run],
        &[
            "submit",
            "check",
            "--inputs",
            "examples/minikilt/kilt",
            "--predictions",
            &predictions,
            "--split",
            "dev",
            "--datasets",
            "fever,nq",
        ],
    ] {
        let (code, printed, errors) = call(arguments);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{arguments:?} {errors}");
        assert!(errors.contains("not finished") && errors.contains("records of"), "{arguments:?} {errors}");
        assert!(errors.contains("continue with `sporran run` and its config"), "{errors}");
    }
    // A finished file of an unfinished run is an error too.
    let finished = folder.join("predictions/nq-dev-kilt.jsonl").display().to_string();
    let journal = folder.join("work/nq-dev-kilt.jsonl.journal");
    kill_when(sporran(&root(), &arguments).spawn().unwrap(), || lines(&journal) > 0);
    for arguments in [
        &["evaluate", "kilt", "--gold", gold, "--guess", &guess][..],
        &["evaluate", "kilt", "--gold", "examples/minikilt/kilt/nq-dev-kilt.jsonl", "--guess", &finished],
        &["submit", "check", &guess],
    ] {
        let (code, printed, errors) = call(arguments);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{arguments:?} {errors}");
        assert!(errors.contains("records of nq-dev-kilt.jsonl"), "{errors}");
        assert!(errors.contains("continue with `sporran run` and its config"), "{errors}");
    }
    let (code, _, errors) = call(&arguments);
    assert_eq!(code, Some(0), "{errors}");
    let (code, printed, errors) = call(&["evaluate", "kilt", "--gold", gold, "--guess", &guess]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(printed.contains("Rprec"), "{printed}");
}

#[test]
fn results_that_a_config_no_longer_produces_are_moved_aside() {
    let place = tempfile::tempdir().unwrap();
    let retrieve = |datasets: &str| {
        let (output, indexes, datasets) = (
            format!("output={}", place.path().display()),
            format!("source.indexes={}", place.path().join("indexes").display()),
            format!("tasks.datasets={datasets}"),
        );
        let arguments =
            ["retrieve", "configs/quickstart.toml", &output, &indexes, &datasets, "tasks.limit=5", "then=[]"];
        let (code, _, errors) = call(&arguments);
        assert_eq!(code, Some(0), "{errors}");
        errors
    };
    let folder = place.path().join("quickstart-retrieval");
    let names = |part: &str| {
        let entries = fs::read_dir(folder.join(part)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    retrieve("[\"nq\", \"fever\"]");
    let own = folder.join("predictions/own.jsonl");
    fs::write(&own, "").unwrap();
    let written =
        |name: &str| fs::metadata(folder.join("predictions").join(name)).unwrap().modified().unwrap();
    let before = written("nq-dev-kilt.jsonl");
    let said = retrieve("[\"fever\"]");
    assert!(
        said.contains(
            "predictions/nq-dev-kilt.jsonl: this config does not produce this result of an earlier run"
        ),
        "{said}"
    );
    assert_eq!(names("predictions"), ["fever-dev-kilt.jsonl", "own.jsonl"]);
    assert_eq!(names("retrieval"), ["fever-dev-kilt.trec"]);
    assert_eq!(names("work/aside/predictions"), ["nq-dev-kilt.jsonl"]);
    assert_eq!(names("work/aside/retrieval"), ["nq-dev-kilt.trec"]);
    // It returns unchanged when it is requested again.
    retrieve("[\"nq\", \"fever\"]");
    assert_eq!(names("predictions"), ["fever-dev-kilt.jsonl", "nq-dev-kilt.jsonl", "own.jsonl"]);
    assert_eq!(written("nq-dev-kilt.jsonl"), before);
}

#[test]
fn a_killed_training_leaves_no_model_and_a_running_one_locks_its_folder() {
    let place = tempfile::tempdir().unwrap();
    let output = format!("output={}", place.path().display());
    let train = |more: &[&str]| -> Vec<String> {
        let own = ["embedding.dim=32", "embedding.training.evaluate-every=1", &output];
        let all = [&["-q", "train", "configs/minikilt/embedding.toml"], &own[..], more].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let long = train(&["embedding.training.epochs=100000"]);
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let folder = place.path().join("minikilt-embedding");
    let child = sporran(&root(), &long).spawn().unwrap();
    let checkpoint = folder.join("checkpoint.safetensors");
    let start = Instant::now();
    while !checkpoint.is_file() && start.elapsed() < Duration::from_secs(300) {
        sleep(Duration::from_millis(5));
    }
    let (code, _, errors) = call(&long);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("another run holds this folder"), "{errors}");
    kill_when(child, || folder.join("best").is_dir());
    assert!(!folder.join("model").exists());
    let model = folder.join("model").display().to_string();
    let asked = ["evaluate", "links", &model, "--kb", "examples/minikilt/kb", "--part", "train"];
    let (code, printed, errors) = call(&asked);
    assert_eq!((code, printed.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("not finished") && errors.contains("continue with `sporran train`"), "{errors}");
    // Other commands open it as a model: by its folder, and by that of the training.
    for asked in [&model, &folder.display().to_string()] {
        for verb in
            [&["generate", "--model"][..], &["embed", "--model"], &["rerank", "--model"], &["models", "show"]]
        {
            let (code, printed, errors) = call(&[verb, &[asked]].concat());
            assert_eq!((code, printed.as_str()), (Some(2), ""), "{errors}");
            assert!(errors.contains("training is incomplete; continue with `sporran train`"), "{errors}");
        }
    }

    // The training does not resume with other options.
    let other = train(&["embedding.training.learning-rate=0.2"]);
    let (code, _, errors) = call(&other.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("embedding.training.learning-rate"), "{errors}");
    // A shorter one ends at once, with the best model so far.
    let short = train(&["embedding.training.epochs=1"]);
    let (code, _, errors) = call(&short.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{errors}");
    let (code, printed, errors) = call(&asked);
    assert_eq!(code, Some(0), "{errors}");
    assert!(printed.contains("mrr"), "{printed}");
    assert_eq!(leftovers(place.path()), [""; 0]);
}

#[test]
fn a_resumed_kbqa_run_reuses_answered_questions() {
    let place = tempfile::tempdir().unwrap();
    let output = format!("output={}", place.path().display());
    let reason = |name: &str| -> [String; 5] {
        ["-q", "reason", "configs/quickstart-reason.toml", &output, &format!("name={name}")]
            .map(str::to_owned)
    };
    let files = ["small_iid_test", "small_ood_test"];
    let written = |name: &str| -> Vec<Vec<u8>> {
        let file = |kind: &str, file: &str| {
            fs::read(place.path().join(name).join(format!("{kind}/{file}.jsonl"))).unwrap()
        };
        files.iter().flat_map(|name| [file("predictions", name), file("answer-sets", name)]).collect()
    };
    let (whole, killed) = (reason("whole"), reason("killed"));
    let (code, _, errors) = call(&whole.each_ref().map(String::as_str));
    assert_eq!(code, Some(0), "{errors}");
    let folder = place.path().join("killed");
    let journal = folder.join("work/small_iid_test.journal");
    kill_when(sporran(&root(), &killed.each_ref().map(String::as_str)).spawn().unwrap(), || {
        lines(&journal) > 0
    });
    fs::create_dir_all(folder.join("answer-sets")).unwrap();
    fs::write(folder.join("answer-sets/.sporran-killed"), "half").unwrap();
    let sets = folder.join("answer-sets/small_iid_test.jsonl").display().to_string();
    let (code, printed, errors) = call(&["evaluate", "answer-sets", &sets]);
    assert_eq!((code, printed.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("continue with `sporran reason`"), "{errors}");
    let (code, first, errors) = call(&killed.each_ref().map(String::as_str));
    assert_eq!(code, Some(0), "{errors}");
    assert!(written("killed") == written("whole"));
    assert_eq!(leftovers(&folder), [""; 0]);
    // The second call only scores the existing predictions.
    let done = |file: &str| {
        fs::metadata(folder.join(format!("predictions/{file}.jsonl"))).unwrap().modified().unwrap()
    };
    let before = files.map(done);
    let (_, second, _) = call(&killed.each_ref().map(String::as_str));
    assert_eq!((files.map(done), second), (before, first));
}
