//! A loaded config answers queries without a run.

use std::{ops::ControlFlow, path::Path, sync::Mutex};

use sporran_generator::Sink;
use sporran_kilt::{Dataset, Query};
use sporran_pipeline::{Config, Options, workflows::answer::System};

use crate::predictions::{enter_root, indexes, overrides};

/// Collects the texts of each request, and ends request 2 at once.
#[derive(Default)]
struct Pieces(Mutex<Vec<(usize, String)>>);

impl Sink for Pieces {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.0.lock().unwrap().push((request, text.to_owned()));
        if request == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_sink_sees_the_answers_of_a_system_and_can_end_them() {
    enter_root();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = Path::new("configs/quickstart.toml");
    let options = Options::parse(config, &overrides(folder, &[indexes(folder)])).unwrap();
    let system = System::open(options, &mut |_| {}).unwrap();
    // Two generators answer: the verifier of FEVER and the reader.
    let queries = [
        (Dataset::Fever, "Darius Milhaud was part of the movement called classical music."),
        (
            Dataset::HotpotQa,
            "Between Lesotho and Switzerland, which is a member of the European Southern Observatory?",
        ),
        (Dataset::HotpotQa, "Which country has the city of Geneva?"),
    ];
    let queries =
        queries.map(|(dataset, text)| Query { dataset: Some(dataset), ..Query::of_text(text, text) });
    let expected = system.answer(&queries).unwrap();
    let pieces = Pieces::default();
    let found = system.answer_into(&queries, &pieces).unwrap();
    let pieces = pieces.0.into_inner().unwrap();
    for at in [0, 1] {
        assert_eq!(found[at].prediction, expected[at].prediction);
        assert!(!found[at].prediction.answer.is_empty() && !found[at].prediction.provenance.is_empty());
    }
    let text: String = pieces.iter().filter(|(of, _)| *of == 1).map(|(_, text)| text.as_str()).collect();
    assert!(text.contains(&expected[1].prediction.answer), "{text:?}");
    assert_eq!(pieces.iter().filter(|(of, _)| *of == 2).count(), 1, "{pieces:?}");
    assert!(found[2].tokens < expected[2].tokens, "{} of {}", found[2].tokens, expected[2].tokens);
}
