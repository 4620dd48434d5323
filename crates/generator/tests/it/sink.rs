//! Answers that a sink receives while they are generated.

use std::{ops::ControlFlow, path::Path, sync::Mutex};

use serde_json::json;
use sporran_generator::{CausalGenerator, CausalOptions, Generator, Request, Sink};
use sporran_kilt::Query;

/// Collects the texts of each request, and ends request 1 in its second step.
#[derive(Default)]
struct Pieces(Mutex<Vec<(usize, String)>>);

impl Pieces {
    fn of(&self, request: usize) -> Vec<String> {
        let pieces = self.0.lock().unwrap();
        pieces.iter().filter(|(of, _)| *of == request).map(|(_, text)| text.clone()).collect()
    }
}

impl Sink for Pieces {
    fn write(&self, request: usize, text: &str) -> ControlFlow<()> {
        self.0.lock().unwrap().push((request, text.to_owned()));
        if request == 1 && self.of(1).len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn generator(generation: serde_json::Value) -> CausalGenerator {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
    let options: CausalOptions =
        serde_json::from_value(json!({ "model": model, "chat": "none", "generation": generation })).unwrap();
    CausalGenerator::load(&options).unwrap()
}

#[test]
fn a_sink_receives_the_answers_and_ends_a_request_without_changing_the_others() {
    for (generation, is_streamed) in [
        (json!({ "max-new-tokens": 8, "min-new-tokens": 8 }), true),
        (json!({ "max-new-tokens": 8, "min-new-tokens": 8, "do-sample": true, "seed": 3 }), true),
        (json!({ "max-new-tokens": 8, "min-new-tokens": 8, "num-beams": 3 }), false),
        (
            json!({ "max-new-tokens": 8, "min-new-tokens": 8, "num-beams": 4, "num-beam-groups": 2, "diversity-penalty": 0.5 }),
            false,
        ),
    ] {
        let generator = generator(generation.clone());
        let queries = ["the river", "the king of the city", "a film"].map(|text| Query::of_text(text, text));
        let requests: Vec<Request<'_>> =
            queries.iter().map(|query| Request { query, passages: &[] }).collect();
        let expected = generator.generate(&requests).unwrap();
        let pieces = Pieces::default();
        let found = generator.generate_into(&requests, &pieces).unwrap();
        for request in [0, 2] {
            assert_eq!(found[request], expected[request], "{generation}");
            let text = pieces.of(request).concat();
            assert!(
                !text.trim().is_empty() && text.contains(&expected[request].text),
                "{generation}: {text}"
            );
        }
        let texts = pieces.of(0).iter().filter(|text| !text.is_empty()).count();
        assert!(if is_streamed { texts > 1 } else { texts == 1 }, "{generation}: {texts}");
        assert_eq!(found[1].tokens, 2, "{generation}");
    }
}
