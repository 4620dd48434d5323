use candle_core::Var;
use sporran_training::{Gradients, Objective, TrainingOptions, Variables};

use super::*;
use crate::{
    AliasTableBuilder, Chain, Link, MentionForm,
    relations::{Annotated, Background, EntityFacts, linear::tests::documents},
};

/// Annotated sentences; chains, links and a knowledge base cover some of their mentions.
fn with_background() -> (Vec<Annotated>, Properties) {
    let (mut documents, properties) = documents();
    let mut names = AliasTableBuilder::default();
    let mut facts = EntityFacts::default();
    for (name, id) in [("Ann", "Q1"), ("Bob", "Q2"), ("Eve", "Q3")] {
        names.add(name, id, 1.0);
        facts.add_type(id, "Q5");
    }
    facts.add_type("Q1", "Q6");
    facts.add_fact("Q1", "P26", "Q2");
    let table = names.build();
    for annotated in &mut documents {
        let chains = [Chain { mentions: vec![(0, 0.9), (1, 0.4)], representative: 0 }];
        let mut links = vec![None; annotated.mentions.len()];
        links[0] = Some(Link { entity: "Q1".into(), confidence: 0.7 });
        let background = Background { chains: &chains, links: &links, knowledge: Some((&table, &facts)) };
        background.annotate(&annotated.document, &annotated.mentions, &mut annotated.candidates);
    }
    (documents, properties)
}

fn shape(pooling: Pooling, dropout: f64) -> BilstmShape {
    BilstmShape {
        words: crate::tagger::WordFeatures { buckets: 60, width: 3 },
        projected: 4,
        width: 3,
        hidden: 4,
        layers: 2,
        dropout,
        around: 1,
        pooling,
        ..BilstmShape::default()
    }
}

fn file(shape: &BilstmShape, properties: &Properties, documents: &[Annotated]) -> BilstmFile {
    let labels = properties.len();
    BilstmFile {
        version: BilstmFile::VERSION,
        shape: shape.clone(),
        encoder: None,
        kinds: BilstmReader::kinds(shape, labels, documents),
        properties: properties.clone(),
        thresholds: Thresholds::even(labels, 0.5),
        link_thresholds: Thresholds::even(labels, 0.5),
    }
}

fn inputs(annotated: &Annotated) -> Vec<RelationInput<'_>> {
    let of = |candidates| (&annotated.document, &*annotated.mentions, candidates);
    annotated.candidates.iter().map(of).collect()
}

fn zeros(variables: &Variables) -> Gradients {
    variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect()
}

/// The slope along a gradient's direction is its norm.
fn check_gradients(variables: &Variables, learn: &dyn Fn() -> (f64, Gradients)) {
    let (_, found) = learn();
    for ((name, var), gradient) in variables.all().iter().zip(&found) {
        let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(norm > 1e-5, "{name} has no gradient");
        let var: &Var = var;
        let before = var.as_tensor().copy().unwrap();
        let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
        let at = |step: f64| {
            var.set(&(&before + (&direction * (step / norm)).unwrap()).unwrap()).unwrap();
            learn().0
        };
        let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
        var.set(&before).unwrap();
        assert!((slope - norm).abs() < 0.02 * norm + 2e-4, "{name}: {slope} {norm}");
    }
}

#[test]
fn every_variable_has_the_gradient_that_differences_show() {
    let (documents, properties) = with_background();
    for (pooling, dropout) in [(Pooling::Mean, 0.0), (Pooling::Max, 0.0), (Pooling::Mean, 0.3)] {
        let shape = shape(pooling, dropout);
        let reader = BilstmReader::new(&file(&shape, &properties, &documents));
        let examples = reader.examples(&documents[..4], None).unwrap();
        let variables = Variables::new(3);
        let network = RelationNetwork::new(&shape, None, properties.len(), &variables).unwrap();
        let options = TrainingOptions::default();
        let objective = RelationObjective::new(&network, examples, 1.0, &options);
        let batch = objective.epoch(0).unwrap().remove(0);
        check_gradients(&variables, &|| {
            let mut gradients = zeros(&variables);
            (objective.learn(&batch, 2.0, 7, &mut gradients).unwrap(), gradients)
        });
    }
}

/// The encoder of a fixture.
fn encoder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders/bert-sequence")
}

#[test]
fn the_mix_of_an_encoder_s_layers_has_its_gradient_too() {
    let (documents, properties) = with_background();
    let shape = shape(Pooling::Mean, 0.0);
    let encoder = LayerEncoder::open(&encoder(), DeviceName::Cpu, Precision::F32).unwrap();
    let reader = BilstmReader::new(&file(&shape, &properties, &documents));
    let examples = reader.examples(&documents[..3], Some(&encoder)).unwrap();
    let variables = Variables::new(3);
    let network = RelationNetwork::new(&shape, Some(encoder.words()), properties.len(), &variables).unwrap();
    let objective = RelationObjective::new(&network, examples, 1.0, &TrainingOptions::default());
    let batch = objective.epoch(0).unwrap().remove(0);
    check_gradients(&variables, &|| {
        let mut gradients = zeros(&variables);
        (objective.learn(&batch, 2.0, 7, &mut gradients).unwrap(), gradients)
    });
}

#[test]
fn a_model_survives_its_folder_and_reads_sentences_by_themselves() {
    let (documents, properties) = with_background();
    let shape = shape(Pooling::Max, 0.0);
    let file = file(&shape, &properties, &documents);
    let variables = Variables::new(5);
    let network = RelationNetwork::new(&shape, None, properties.len(), &variables).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tensors: HashMap<String, Tensor> =
        variables.all().into_iter().map(|(name, var)| (name, var.as_tensor().clone())).collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    file.save(folder.path()).unwrap();
    assert_eq!(BilstmFile::load(folder.path()).unwrap(), file);
    let model = super::super::open(folder.path(), DeviceName::Cpu, Precision::F32).unwrap();
    let all: Vec<RelationInput<'_>> = documents.iter().flat_map(inputs).collect();
    let together = model.score(&all).unwrap();
    let reader = BilstmReader::new(&file);
    for (input, scores) in all.iter().zip(&together) {
        let sentences = reader.sentences(std::slice::from_ref(input), None).unwrap();
        let logits = network.logits(&[&sentences[0]]).unwrap();
        let alone = reader.scores(*input, &sentences[0], &logits[0]);
        for pair in 0..input.2.pairs.len() {
            assert!((alone.of(pair, 0) - scores.of(pair, 0)).abs() < 1e-6);
            assert!(alone.of(pair, 0) > 0.0);
        }
    }
    let path = folder.path().join(BILSTM);
    let text = std::fs::read_to_string(&path).unwrap();
    let message = |from: &str, to: &str| {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        BilstmRelations::load(folder.path(), DeviceName::Cpu, Precision::F32).err().unwrap().to_string()
    };
    assert!(message("\"version\": 1", "\"version\": 2").contains("expected version 1, found 2"));
    assert!(message("\"hidden\": 4", "\"hidden\": 5").contains("lstm.weight_ih_l0"));
    assert!(message("\"layers\": 2", "\"layers\": 0").contains("shape.layers"));
}

#[test]
fn types_restrict_the_pairs_that_are_read() {
    let (mut documents, properties) = with_background();
    let person = crate::EntityType::Person;
    let place = crate::EntityType::Location;
    for annotated in &mut documents {
        for candidates in &mut annotated.candidates {
            candidates.known.iter_mut().for_each(|known| known.kind = person);
        }
    }
    // One of the twelve facts is between a person and a place: too many to be an accident.
    documents[0].candidates[0].known[1].kind = place;
    let shape = BilstmShape { pairs: Pairing::ByType, ..shape(Pooling::Max, 0.0) };
    let kinds = BilstmReader::kinds(&shape, 1, &documents);
    assert_eq!(kinds, [vec![(person, person), (person, place)]]);
    let all = BilstmReader::kinds(&BilstmShape { pairs: Pairing::All, ..shape.clone() }, 1, &documents);
    assert!(all.is_empty());
    let only = BilstmFile { kinds: vec![vec![(person, place)]], ..file(&shape, &properties, &documents) };
    let reader = BilstmReader::new(&only);
    let sentences = reader.sentences(&inputs(&documents[0]), None).unwrap();
    let logits = vec![0.0; sentences[0].pairs.len() * 4];
    let scores = reader.scores(inputs(&documents[0])[0], &sentences[0], &logits);
    // From the person to the place, and not back.
    assert_eq!((scores.of(0, 0), scores.of(1, 0)), (0.5, 0.0));
    assert!(reader.sentences(&inputs(&documents[1]), None).unwrap()[0].pairs.is_empty());
}

#[test]
fn a_fact_without_links_has_no_link_targets() {
    let (mut documents, properties) = with_background();
    let reader = BilstmReader::new(&file(&shape(Pooling::Max, 0.0), &properties, &documents));
    let outputs = |documents: &[Annotated]| -> Vec<(usize, f32)> {
        let examples = reader.examples(&documents[..1], None).unwrap();
        examples[0].pairs[0].1.clone()
    };
    // Text and link, in both directions: the fact holds from the first mention to the second.
    assert_eq!(outputs(&documents), [(0, 1.0), (2, 0.0), (3, 0.0)]);
    documents[0].facts[0].linked = true;
    assert_eq!(outputs(&documents), [(0, 1.0), (1, 1.0), (2, 0.0), (3, 0.0)]);
    assert_eq!(documents[0].mentions[0].form, MentionForm::Name);
}

#[test]
fn each_pass_draws_its_own_negatives_and_has_all_positives() {
    let (documents, properties) = with_background();
    let shape = shape(Pooling::Max, 0.0);
    let reader = BilstmReader::new(&file(&shape, &properties, &documents));
    let examples = reader.examples(&documents, None).unwrap();
    let network = RelationNetwork::new(&shape, None, properties.len(), &Variables::new(3)).unwrap();
    let options = TrainingOptions { tokens_per_batch: 1_000_000, ..TrainingOptions::default() };
    let pairs = |negatives: f64, number: u64| {
        let objective = RelationObjective::new(&network, examples.clone(), negatives, &options);
        let batches = objective.epoch(number).unwrap();
        (objective.weight(&batches[0]), objective.tokens(&batches[0]))
    };
    // Twelve sentences express a fact and twelve do not. The former have three known outputs (the fact has no
    // links), the latter four.
    assert_eq!((pairs(1.0, 0).0, pairs(0.0, 0).0), (12.0 * 3.0 + 12.0 * 4.0, 12.0 * 3.0));
    let halves: Vec<f64> = (0..6).map(|number| pairs(0.5, number).0).collect();
    assert!(halves.iter().all(|weight| (36.0..=84.0).contains(weight)));
    assert!(halves.iter().any(|weight| *weight != halves[0]), "{halves:?}");
    assert_eq!(pairs(0.5, 3), pairs(0.5, 3));
}
