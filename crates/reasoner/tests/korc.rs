//! Builds questions from documents, triples and rules, and answers them with explanations.

use std::ops::ControlFlow;

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, Part, Triple},
    korc::Question,
};
use sporran_reasoner::{
    Error,
    embedding::{self, EmbeddingModel, Storage},
    korc::{
        self, BuildOptions, Built, Document, Entities, EntityTables, Mention, SPLITS, Sources, Statistics,
        Templates,
    },
    question::{
        Parts, QuestionExample, QuestionInput, QuestionKind, QuestionModel, QuestionObjective, Vectors,
    },
    rules::{self, Graph, MineOptions, Rule},
};
use sporran_training::{
    Training, TrainingOptions, Variables, VocabularyOptions, tokenizer_files, train, train_vocabulary,
};
use sporran_transformers::{BertConfig, BertFamily, BertTask};

const BORN: u32 = 0;
const LANGUAGE: u32 = 1;
const SPEAKS: u32 = 2;
const PEOPLE: u32 = 60;
const TOWNS: [&str; 6] = ["Aberport", "Brookhaven", "Castleford", "Dunmore", "Eastwick", "Fairholm"];
const LANGUAGES: [&str; 3] = ["Arvish", "Bretic", "Corlan"];

/// People are born in towns, each with a language that they speak too. Each person is in two documents.
struct World {
    kb: KnowledgeBase,
    entities: Entities,
    documents: Vec<Document>,
    rules: Vec<Rule>,
    templates: Templates,
}

impl World {
    fn new() -> Self {
        let mut kb = KnowledgeBase::default();
        let mut table = "id\tlabel\ttype\n".to_owned();
        let mut add = |kb: &mut KnowledgeBase, name: &str, class: &str| {
            let id = kb.add_entity(&format!("Q{}", kb.entity_count())).unwrap();
            kb.set_label(id, name);
            table.push_str(&format!("{}\t{name}\t{class}\n", kb.entity_name(id)));
            id.0
        };
        let people: Vec<u32> = (0..PEOPLE)
            .map(|at| {
                let letters: String =
                    [at / 10, at % 10].map(|digit| char::from(b'a' + digit as u8)).iter().collect();
                add(&mut kb, &format!("Nam{letters} Sur{letters}"), "person")
            })
            .collect();
        let towns = TOWNS.map(|name| add(&mut kb, name, "town"));
        let languages = LANGUAGES.map(|name| add(&mut kb, name, "language"));
        for (name, label) in [("P1", "place of birth"), ("P2", "language"), ("P3", "language spoken")] {
            let id = kb.add_relation(name).unwrap();
            kb.set_relation_label(id, label);
        }
        let mut documents = Vec::new();
        let say = |kb: &mut KnowledgeBase, s, r, o| kb.add(Part::Train, Triple::new(s, r, o)).unwrap();
        for (at, &town) in towns.iter().enumerate() {
            say(&mut kb, town, LANGUAGE, languages[at % 3]);
        }
        for (at, &person) in people.iter().enumerate() {
            let town = at % 6;
            say(&mut kb, person, BORN, towns[town]);
            say(&mut kb, person, SPEAKS, languages[town % 3]);
            let name = kb.label(EntityId(person)).to_owned();
            for (number, verb) in ["was born in", "comes from"].iter().enumerate() {
                let text = format!("{name} {verb} {}.", TOWNS[town]);
                let start = text.len() - TOWNS[town].len() - 1;
                documents.push(Document {
                    id: format!("{at}-{number}"),
                    title: name.clone(),
                    mentions: vec![
                        Mention { start: 0, end: name.len(), entity: EntityId(person) },
                        Mention { start, end: text.len() - 1, entity: EntityId(towns[town]) },
                    ],
                    relations: vec![Triple::new(person, BORN, towns[town])],
                    text,
                    place: None,
                });
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &table).unwrap();
        let tables = EntityTables { tables: vec![file.path().to_owned()], ..EntityTables::default() };
        let entities = Entities::load(&tables, &kb).unwrap();
        let options = MineOptions { acyclic_length: 0, batch: 500, batches: 9, ..MineOptions::default() };
        let graph = Graph::of(kb.triples(Part::Train));
        let rules = rules::mine(&graph, &options, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        Self { kb, entities, documents, rules, templates: Templates::default() }
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            kb: &self.kb,
            entities: &self.entities,
            documents: &self.documents,
            rules: &self.rules,
            templates: &self.templates,
        }
    }

    fn build(&self) -> Built {
        korc::build(&self.sources(), &options(), 3).unwrap()
    }
}

fn options() -> BuildOptions {
    BuildOptions { hold_out: false, ..BuildOptions::default() }
}

#[test]
fn questions_are_anonymous_and_split_by_question_triple() {
    let world = World::new();
    let built = world.build();
    assert!(built.questions.iter().all(|questions| !questions.is_empty()));
    let statistics = Statistics::of(&world.sources(), &built);
    // Half of 120 documents are for training.
    assert_eq!((statistics.splits[0].documents, statistics.splits[0].split.as_str()), (60, SPLITS[0]));
    let pair = |question: &Question| (question.topics().to_vec(), question.extra["relation"].clone());
    let trained: Vec<_> = built.questions[0].iter().map(pair).collect();
    assert!(built.questions[2].iter().all(|question| trained.contains(&pair(question))));
    assert!(built.questions[3].iter().all(|question| !trained.contains(&pair(question))));
    for question in built.questions.iter().flatten() {
        let texts = [question.document(), &question.question, question.title.as_deref().unwrap()];
        let topic = world.kb.entity(&question.topics()[0]).unwrap();
        for part in world.kb.label(topic).split(' ') {
            assert!(texts.iter().all(|text| !text.contains(part)), "{question:?}");
        }
        assert!(question.labels().iter().all(|label| !question.document().contains(label.as_str())));
    }
    let again = world.build();
    assert_eq!(again.questions, built.questions);
}

#[test]
fn question_triples_are_removed_from_the_knowledge_base() {
    let world = World::new();
    let built = korc::build(&world.sources(), &BuildOptions::default(), 3).unwrap();
    let known: Vec<(u32, u32, u32)> =
        built.knowledge.iter().map(|triple| (triple.subject.0, triple.relation.0, triple.object.0)).collect();
    for origin in built.origins.iter().flatten() {
        for answer in &origin.answers {
            assert!(!known.contains(&(origin.entity.0, origin.relation.0, answer.0)));
        }
        for chain in &origin.chains {
            assert!(chain.knowledge.iter().all(|triple| known.contains(triple)), "{chain:?}");
        }
    }
    assert!(built.knowledge.len() < world.kb.triples(Part::Train).len());
}

#[test]
fn a_leak_fails_the_build() {
    let mut world = World::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"P3":["Does {} speak Arvish, or what?"]}"#).unwrap();
    world.templates = Templates::load(file.path()).unwrap();
    let error = korc::build(&world.sources(), &options(), 3).unwrap_err();
    assert!(
        matches!(&error, Error::Leak { leaks, .. } if leaks[0].contains("it contains the answer `Arvish`")),
        "{error}"
    );
    let shares = BuildOptions { train: 0.9, valid: 0.1, ..options() };
    let error = korc::build(&world.sources(), &shares, 3).unwrap_err();
    assert!(matches!(error, Error::Argument(message) if message.contains("so that tests have documents")));
}

fn parts(kind: QuestionKind, questions: &[Question]) -> Parts {
    let texts: Vec<&str> =
        questions.iter().flat_map(|question| [question.question.as_str(), question.document()]).collect();
    let vocabulary = VocabularyOptions { size: 400, min_frequency: 2, marks: vec![] };
    let files = tokenizer_files(&train_vocabulary(texts.into_iter(), &vocabulary).unwrap()).unwrap();
    let json = files.into_iter().find(|(name, _)| name == "tokenizer.json").unwrap().1;
    let tokenizer = Tokenizer::from_json("t".as_ref(), String::from_utf8(json).unwrap()).unwrap();
    let encoder = BertConfig {
        family: BertFamily::Bert,
        task: BertTask::States,
        vocab_size: tokenizer.vocab_size(),
        hidden_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 48,
        hidden_act: "gelu".into(),
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        head_dropout: 0.0,
        max_position_embeddings: 64,
        type_vocab_size: 2,
        initializer_range: 0.1,
        layer_norm_eps: 1e-12,
        pad_token_id: 0,
        projection_dim: 0,
        embedding_size: None,
        sharing: None,
        disentangled: None,
        labels: vec!["LABEL_0".into(), "LABEL_1".into()],
        tie_word_embeddings: true,
    };
    Parts { kind, encoder, tokenizer, max_tokens: 64, variables: Variables::new(2), vectors: Vectors::Drawn }
}

/// A ComplEx of 8 complex numbers for the world's triples.
fn embedding(kb: &KnowledgeBase) -> EmbeddingModel {
    let options = serde_json::from_value(serde_json::json!({
        "model": "complex", "dim": 16, "initial": "normal", "initial-scale": 0.1, "training": { "epochs": 30 }
    }));
    let folder = tempfile::tempdir().unwrap();
    let options = options.unwrap();
    let training =
        embedding::Training { kb, options: &options, seed: 4, folder: folder.path(), storage: Storage::F32 };
    let outcome = embedding::train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
    EmbeddingModel::open(&outcome.model).unwrap()
}

fn right(model: &QuestionModel, questions: &[Question], kb: &KnowledgeBase) -> f64 {
    let inputs: Vec<QuestionInput<'_>> = questions
        .iter()
        .map(|question| QuestionInput { question: &question.question, document: question.document() })
        .collect();
    let answered = model.answers(&inputs, 1).unwrap();
    let hits = answered.iter().zip(questions).filter(|(answered, question)| {
        answered
            .answers
            .first()
            .is_some_and(|answer| question.ids().iter().any(|id| id == kb.entity_name(answer.entity)))
    });
    hits.count() as f64 / questions.len() as f64
}

#[test]
fn models_learn_to_answer_and_come_back_from_their_folders() {
    let world = World::new();
    let built = world.build();
    let (learned, held_out) = (&built.questions[0], &built.questions[3]);
    let (transfer, embed) = (QuestionKind::TransferNet { steps: 2 }, QuestionKind::EmbedKgqa { rank: 8 });
    let trained = embedding(&world.kb);
    let rows = trained.vectors_for(&world.kb);
    let vectors = || Tensor::from_slice(&rows, (world.kb.entity_count(), 16), &Device::Cpu).unwrap();
    let expected = 0.9;
    for (kind, start) in [
        (transfer, Vectors::Drawn),
        (embed, Vectors::Drawn),
        (embed, Vectors::From(vectors())),
        (embed, Vectors::Fixed(vectors())),
    ] {
        let stays = match &start {
            Vectors::Drawn => None,
            Vectors::From(_) => Some(false),
            Vectors::Fixed(_) => Some(true),
        };
        let model = QuestionModel::new(Parts { vectors: start, ..parts(kind, learned) }, &world.kb).unwrap();
        let examples: Vec<QuestionExample> = learned
            .iter()
            .map(|question| QuestionExample {
                input: model
                    .read(&QuestionInput { question: &question.question, document: question.document() })
                    .unwrap(),
                answers: question.ids().iter().map(|id| world.kb.entity(id).unwrap().0).collect(),
            })
            .collect();
        let options = TrainingOptions {
            steps: 120,
            tokens_per_batch: 512,
            learning_rate: 5e-3,
            warmup_steps: 10,
            ..TrainingOptions::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let training = Training {
            objective: &QuestionObjective::new(&model, examples, &options),
            variables: model.encoder().variables(),
            options: &options,
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        let share = right(&model, held_out, &world.kb);
        assert!(share >= expected, "{kind:?}: {share}");

        let saved = folder.path().join("model");
        model.save(&saved, &world.kb, "role = \"reasoner\"\n").unwrap();
        let loaded = QuestionModel::load(&saved, &world.kb).unwrap();
        if let Some(stays) = stays {
            let tensors =
                candle_core::safetensors::load(saved.join("model.safetensors"), &Device::Cpu).unwrap();
            let found = tensors["question.entities"].to_dtype(DType::F32).unwrap();
            let found: Vec<f32> = found.flatten_all().unwrap().to_vec1().unwrap();
            let moved = found.iter().zip(&rows).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert_eq!(moved < 2e-3, stays, "{moved}");
        }
        assert!(right(&loaded, held_out, &world.kb) >= expected);
        let question = &held_out[0];
        let one = QuestionInput { question: &question.question, document: question.document() };
        let found = loaded.answers(&[one], 1).unwrap().remove(0);
        let answer = &found.answers[0];
        // The town leads to the language, directly or by another town's people.
        let bridge = answer.bridge.unwrap();
        assert!(TOWNS.contains(&&question.document()[bridge.start..bridge.end]), "{found:?}");
        let (first, last) = (answer.triples[0], answer.triples[answer.triples.len() - 1]);
        assert!(first.0 == bridge.entity || first.2 == bridge.entity);
        assert!(last.2 == answer.entity.0 || last.0 == answer.entity.0);
        assert!((0.0..=1.0).contains(&answer.confidence));
        // A batch equals its single members.
        let other = QuestionInput { question: &held_out[1].question, document: held_out[1].document() };
        let both = loaded.answers(&[other, one], 1).unwrap();
        assert_eq!(both[1].answers[0].entity, answer.entity);
    }
}

#[test]
fn vectors_of_another_size_are_refused() {
    let world = World::new();
    let built = world.build();
    let rows = Tensor::zeros((world.kb.entity_count(), 6), DType::F32, &Device::Cpu).unwrap();
    let parts = parts(QuestionKind::EmbedKgqa { rank: 8 }, &built.questions[0]);
    let error = QuestionModel::new(Parts { vectors: Vectors::Fixed(rows), ..parts }, &world.kb).unwrap_err();
    assert!(error.to_string().contains("rows of 16, found"), "{error}");
}
