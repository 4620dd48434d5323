//! Packs the tensors of encoders and encoder-decoders.

use candle_core::Device;
use sporran_checkpoint::{Architecture, Result, SpecialTokens};
use sporran_kernels::{Norm, Precision, Rows};

use super::{
    disentangled::{DistanceRows, ProjectedDistances},
    encoder::PackedEncoder,
    layers::{
        Adapter, CrossAttention, Dense, FeedForward, FeedPart, Linear, Machine, Machines, SelfAttention,
        Switch,
    },
    local::{Summaries, Windows},
    modernbert::{ModernBertLayer, PackedModernBert},
    packer::{Packer, Read, named},
    seq2seq::PackedSeq2Seq,
    stack::{Layer, Positions, Stack},
    state_convolution::StateConvolution,
    t5_encoder::PackedT5Encoder,
};
use crate::{
    architectures::{
        bart::{BartConfig, EPSILON, PositionKind},
        bert::{
            ADAPTER_NORM, AdapterNorm, BertConfig, BertFamily, BertNames, ConvolutionSettings, Disentangled,
            GLOBAL_NAMES, MPNET_BIASES, MPNET_BUCKETS, MPNET_DISTANCE,
        },
        modernbert::ModernBertConfig,
        t5::{SUMMARY_BIASES, SUMMARY_NORM, SwitchSizes, T5Config, T5EncoderConfig},
    },
    decode::GenerationOptions,
};

impl PackedSeq2Seq {
    /// Packs a T5 model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and those of `read`.
    pub(crate) fn t5(
        config: &T5Config,
        tokens: SpecialTokens,
        generation: GenerationOptions,
        precision: Precision,
        read: Read<'_>,
    ) -> Result<Self> {
        let packer = &mut Packer { read, precision };
        let width = config.d_model;
        let (head, embeddings) =
            packer.words("shared", (!config.tie_word_embeddings).then_some("lm_head"), width)?;
        let encoder = t5_stack(config, false, packer)?;
        let decoder = t5_stack(config, true, packer)?;
        let head_scale = if config.scales_decoder_outputs() { (width as f32).powf(-0.5) } else { 1.0 };
        Ok(Self {
            embeddings,
            embedding_scale: 1.0,
            head,
            head_scale,
            encoder,
            decoder,
            width,
            precision,
            tokens,
            generation,
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }

    /// Packs a BART model.
    ///
    /// # Errors
    /// As for [`t5`](Self::t5).
    pub(crate) fn bart(
        config: &BartConfig,
        tokens: SpecialTokens,
        generation: GenerationOptions,
        precision: Precision,
        read: Read<'_>,
    ) -> Result<Self> {
        let packer = &mut Packer { read, precision };
        let width = config.d_model;
        let head_of_words = (!config.tie_word_embeddings).then_some("lm_head");
        let (mut head, embeddings) =
            packer.words(&format!("{}.shared", config.family.body()), head_of_words, width)?;
        let encoder = bart_stack(config, false, packer)?;
        let decoder = bart_stack(config, true, packer)?;
        let bias = || packer.values("final_logits_bias");
        head.bias = config.family.has_logits_bias().then(bias).transpose()?;
        let embedding_scale = if config.scale_embedding { (width as f32).sqrt() } else { 1.0 };
        Ok(Self {
            embeddings,
            embedding_scale,
            head,
            head_scale: 1.0,
            encoder,
            decoder,
            width,
            precision,
            tokens,
            generation,
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }
}

impl PackedEncoder {
    /// Packs the body of an encoder.
    ///
    /// # Errors
    /// As for [`PackedSeq2Seq::t5`].
    pub(crate) fn bert(config: &BertConfig, precision: Precision, read: Read<'_>) -> Result<Self> {
        let packer = &mut Packer { read, precision };
        let at = |name: &str| match config.prefix() {
            "" => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        };
        let names = config.names();
        let (width, heads, eps) = (config.hidden_size, config.num_attention_heads, config.layer_norm_eps);
        let table =
            |packer: &mut Packer<'_>, name: &str| packer.values(&at(&format!("embeddings.{name}.weight")));
        let words = packer.table(&at("embeddings.word_embeddings.weight"), config.embedding_width())?;
        let has_bias = config.family.attention_has_bias();
        let (inner_bias, outer_bias) = config.family.feed_forward_biases();
        let prefixes: Vec<String> = config.layer_prefixes().iter().map(|prefix| at(prefix)).collect();
        let mut layers = Vec::with_capacity(prefixes.len());
        for prefix in &prefixes {
            let norm =
                |packer: &mut Packer<'_>, name: &str| packer.norm(&format!("{prefix}.{name}"), true, eps);
            let inputs = match (names.fused, names.by_heads) {
                (_, Some(name)) => inputs_by_heads(&format!("{prefix}.{name}"), (width, heads), packer)?,
                (Some(name), None) => packer.linear(&named(prefix, &[name]), width, has_bias)?,
                (None, None) => {
                    bert_linear(config, packer, prefix, &[names.query, names.key, names.value], has_bias)?
                }
            };
            let own = SelfAttention {
                inputs,
                output: bert_linear(config, packer, prefix, &[names.output], has_bias)?,
                norm: norm(packer, names.attention_norm)?,
            };
            let (gated, inner) = match names.fused_inner {
                Some(name) => {
                    let size = (width, config.intermediate_size);
                    let [first, second] = packer.halves(&format!("{prefix}.{name}"), size, inner_bias)?;
                    if names.activated_first { (Some(second), first) } else { (Some(first), second) }
                }
                None => {
                    let mut linear = |name| bert_linear(config, packer, prefix, &[name], inner_bias);
                    (names.gated.map(&mut linear).transpose()?, linear(names.inner)?)
                }
            };
            let function = config.activation()?.into();
            let outer = bert_linear(config, packer, prefix, &[names.outer], outer_bias)?;
            let dense = Dense { inner, gated, outer, function };
            let own_norm = norm(packer, names.feed_forward_norm)?;
            let dense = match config.adapters() {
                Some(adapters) => {
                    let [first, second] = adapters.names().map(|name| format!("{prefix}.{name}"));
                    let adapter = Adapter {
                        norm: match adapters.norm {
                            AdapterNorm::None => None,
                            AdapterNorm::Own => Some(norm(packer, ADAPTER_NORM)?),
                            AdapterNorm::Shared => Some(own_norm.clone()),
                        },
                        adds_to_normed: adapters.adds_to_normed,
                        dense: Dense {
                            inner: packer.linear(&[first], width, true)?,
                            gated: None,
                            outer: packer.linear(&[second], adapters.inner(width), true)?,
                            function,
                        },
                    };
                    FeedPart::Adapted(dense, Box::new(adapter))
                }
                None => FeedPart::Dense(dense),
            };
            let feed_forward = FeedForward { dense, norm: own_norm };
            layers.push(Layer { own, cross: None, feed_forward });
        }
        let windows = Windows { sides: config.windows(), summaries: None, first: Vec::new() };
        let mut windows = Some(windows).filter(|windows| !windows.sides.is_empty());
        if let Some(windows) = windows.as_mut().filter(|_| config.sees_first()) {
            for prefix in &prefixes {
                windows.first.push(packer.linear(&named(prefix, &GLOBAL_NAMES), width, has_bias)?);
            }
        }
        let types = config.has_types().then(|| table(packer, "token_type_embeddings")).transpose()?;
        let positions = config.has_positions().then(|| table(packer, "position_embeddings")).transpose()?;
        let tasks = (config.task_types() > 0).then(|| table(packer, "task_type_embeddings")).transpose()?;
        let norm = |packer: &mut Packer<'_>, name: &str| packer.norm(&at(name), true, eps);
        let mut embedding_norm = match config.family.norms_embeddings() {
            true => Some(norm(packer, config.embedding_norm())?),
            false => None,
        };
        let final_norm = config.final_norm().map(|name| norm(packer, name)).transpose()?;
        let projection = match config.projection_name() {
            Some(name) => {
                let projection = packer.linear(&[at(name)], config.embedding_width(), true)?;
                embedding_norm.take().map(|norm| (norm, projection))
            }
            None => None,
        };
        let relative = match config.disentangled() {
            Some(settings) if settings.is_relative => Positions::Disentangled(distance_rows(
                config,
                settings,
                names,
                (&at("encoder"), &prefixes),
                packer,
            )?),
            _ if config.family == BertFamily::Mpnet => Positions::Relative {
                weights: vec![packer.values(&at(MPNET_BIASES))?],
                buckets: MPNET_BUCKETS,
                max_distance: MPNET_DISTANCE,
            },
            _ => match (config.rotation_steps(), config.alibi()) {
                (Some(steps), _) => {
                    Positions::Rotary { steps, turns_neighbours: config.family.turns_neighbours() }
                }
                (None, Some(alibi)) => Positions::Falling(alibi),
                (None, None) => Positions::Embedded,
            },
        };
        Ok(Self {
            words,
            positions,
            types,
            tasks,
            projection,
            stack: Stack {
                layers,
                order: config.order(),
                norm_first: config.norms_first(),
                heads,
                head_width: width / heads,
                scale: config.scale() as f32,
                positions: relative,
                windows,
                word_norm: None,
                embedding_norm,
                final_norm,
                convolution: config
                    .convolution()
                    .map(|settings| state_convolution(config, settings, &at("encoder.conv"), packer))
                    .transpose()?,
            },
            config: config.clone(),
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }
}

/// One layer from those called `names` under `prefix`, one under the other.
fn bert_linear(
    config: &BertConfig,
    packer: &mut Packer<'_>,
    prefix: &str,
    names: &[&'static str],
    has_bias: bool,
) -> Result<Linear> {
    let is_outer = names == [config.names().outer];
    let inputs = if is_outer { config.intermediate_size } else { config.hidden_size };
    let groups = |name: &&'static str| Some((format!("{prefix}.{name}"), config.groups_of(name)?));
    match names.iter().map(groups).collect::<Option<Vec<_>>>() {
        Some(grouped) => packer.grouped(&grouped, inputs),
        None => packer.linear(&named(prefix, names), inputs, has_bias),
    }
}

impl PackedT5Encoder {
    /// Packs the encoder of a T5.
    ///
    /// # Errors
    /// As for [`PackedSeq2Seq::t5`].
    pub(crate) fn new(config: &T5EncoderConfig, precision: Precision, read: Read<'_>) -> Result<Self> {
        let packer = &mut Packer { read, precision };
        Ok(Self {
            words: packer.table("shared.weight", config.sizes.d_model)?,
            stack: t5_stack(&config.sizes, false, packer)?,
            config: config.clone(),
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }
}

impl PackedModernBert {
    /// Packs the body of a ModernBERT.
    ///
    /// # Errors
    /// As for [`PackedSeq2Seq::t5`].
    pub(crate) fn new(config: &ModernBertConfig, precision: Precision, read: Read<'_>) -> Result<Self> {
        config.validate()?;
        let packer = &mut Packer { read, precision };
        let at = |name: &str| format!("{}{name}", config.prefix());
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let norm = |packer: &mut Packer<'_>, name: &str| -> Result<Norm> {
            let norm = packer.norm(name, config.norm_bias, config.norm_eps)?;
            // Without a shift it still subtracts the mean.
            Ok(Norm { bias: norm.bias.or_else(|| Some(vec![0.0; width])), ..norm })
        };
        let words = packer.table(&config.table(), width)?;
        let mut layers = Vec::with_capacity(config.local_layers.len());
        for (i, is_local) in config.local_layers.iter().enumerate() {
            let prefix = at(&format!("layers.{i}"));
            let part = |name: &str| format!("{prefix}.{name}");
            let attention_norm = (i > 0).then(|| norm(packer, &part("attn_norm"))).transpose()?;
            let [activated, gated] = packer.halves(&part("mlp.Wi"), (width, inner), config.mlp_bias)?;
            layers.push(ModernBertLayer {
                norm: attention_norm,
                inputs: packer.linear(&[part("attn.Wqkv")], width, config.attention_bias)?,
                output: packer.linear(&[part("attn.Wo")], width, config.attention_bias)?,
                feed_forward: FeedForward {
                    dense: FeedPart::Dense(Dense {
                        inner: activated,
                        gated: Some(gated),
                        outer: packer.linear(&[part("mlp.Wo")], inner, config.mlp_bias)?,
                        function: config.activation()?.into(),
                    }),
                    norm: norm(packer, &part("mlp_norm"))?,
                },
                is_local: *is_local,
            });
        }
        Ok(Self {
            words,
            embedding_norm: norm(packer, &at("embeddings.norm"))?,
            layers,
            final_norm: norm(packer, &at("final_norm"))?,
            config: config.clone(),
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }
}

/// The projections to queries, keys and values of the first DeBERTa: those of each head lie one under the other, and keys have
/// no bias.
fn inputs_by_heads(name: &str, (width, heads): (usize, usize), packer: &mut Packer<'_>) -> Result<Linear> {
    let places: Vec<usize> = (0..3).flat_map(|part| (0..heads).map(move |head| 3 * head + part)).collect();
    let Linear { matrix, .. } = packer.placed(&format!("{name}.in_proj"), width, &places, false)?;
    let mut bias = packer.values(&format!("{name}.q_bias"))?;
    bias.resize(2 * width, 0.0);
    bias.extend(packer.values(&format!("{name}.v_bias"))?);
    Ok(Linear { matrix, bias: Some(bias) })
}

/// The convolution over embeddings of an encoder whose tensors begin with `prefix`.
fn state_convolution(
    config: &BertConfig,
    settings: &ConvolutionSettings,
    prefix: &str,
    packer: &mut Packer<'_>,
) -> Result<StateConvolution> {
    let kernel = settings.kernel;
    Ok(StateConvolution {
        linear: packer.linear(&named(prefix, &["conv"]), kernel * config.hidden_size, true)?,
        kernel,
        function: settings.function()?.into(),
        norm: packer.norm(&format!("{prefix}.LayerNorm"), true, config.layer_norm_eps)?,
    })
}

/// The embeddings of distances of an encoder, as the layers under `prefixes` project them, in f32.
fn distance_rows(
    config: &BertConfig,
    settings: &Disentangled,
    names: &BertNames,
    (encoder, prefixes): (&str, &[String]),
    packer: &mut Packer<'_>,
) -> Result<DistanceRows> {
    let (width, machine) = (config.hidden_size, &mut Machine::default());
    let values = packer.values(&format!("{encoder}.rel_embeddings.weight"))?;
    let mut rows = Rows::new(2 * settings.span(), width);
    for (at, values) in values.chunks_exact(width).enumerate() {
        rows.row_mut(at).copy_from_slice(values);
    }
    if settings.is_normalised {
        let norm = packer.norm(&format!("{encoder}.LayerNorm"), true, config.layer_norm_eps)?;
        norm.forward(machine.core.isa, machine.core.pool, &mut rows);
    }
    let precision = std::mem::replace(&mut packer.precision, Precision::F32);
    let key_bias = config.family != BertFamily::FirstDeberta;
    let mut layers = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        let mut projected = |reads: bool, own: &str, shared: &str, has_bias: bool| {
            let name = match settings.shares_projections {
                true => format!("{prefix}.{shared}"),
                false => format!("{prefix}.attention.self.{own}"),
            };
            let linear = || packer.linear(&[name], width, has_bias);
            reads.then(linear).transpose().map(|linear| linear.map(|linear| linear.values(machine, &rows)))
        };
        layers.push(ProjectedDistances {
            keys: projected(settings.content_to_position, names.distance_key, names.key, key_bias)?,
            queries: projected(settings.position_to_content, names.distance_query, names.query, true)?,
        });
    }
    packer.precision = precision;
    Ok(DistanceRows { settings: settings.clone(), layers })
}

fn t5_stack(config: &T5Config, is_decoder: bool, packer: &mut Packer<'_>) -> Result<Stack> {
    let part = if is_decoder { "decoder" } else { "encoder" };
    let count = if is_decoder { config.decoder_layers() } else { config.num_layers };
    let (width, inner, eps) = (config.d_model, config.num_heads * config.d_kv, config.layer_norm_epsilon);
    let mut layers = Vec::with_capacity(count);
    for i in 0..count {
        let at = |part_of: usize| format!("{part}.block.{i}.layer.{part_of}");
        let norm = |packer: &mut Packer<'_>, part_of| {
            packer.norm(&format!("{}.layer_norm", at(part_of)), false, eps)
        };
        let attention = format!("{}.{}", at(0), config.own_attention(is_decoder));
        let own = SelfAttention {
            inputs: packer.linear(&named(&attention, &["q", "k", "v"]), width, false)?,
            output: packer.linear(&named(&attention, &["o"]), inner, false)?,
            norm: norm(packer, 0)?,
        };
        let cross = if is_decoder {
            let attention = format!("{}.EncDecAttention", at(1));
            Some(CrossAttention {
                queries: packer.linear(&named(&attention, &["q"]), width, false)?,
                sources: packer.linear(&named(&attention, &["k", "v"]), width, false)?,
                output: packer.linear(&named(&attention, &["o"]), inner, false)?,
                norm: norm(packer, 1)?,
            })
        } else {
            None
        };
        let last = 1 + usize::from(is_decoder);
        let place = format!("{}.{}", at(last), config.feed_forward_name());
        let feed_forward = FeedForward {
            dense: match config.experts(i, is_decoder) {
                Some(sizes) => FeedPart::Switch(t5_experts(config, sizes, &place, packer)?),
                None => FeedPart::Dense(t5_dense(config, &place, packer)?),
            },
            norm: norm(packer, last)?,
        };
        layers.push(Layer { own, cross, feed_forward });
    }
    let mut weights = |at: usize| {
        let attention = format!("{part}.block.{at}.layer.0.{}", config.own_attention(is_decoder));
        packer.values(&format!("{attention}.relative_attention_bias.weight"))
    };
    let weights = (0..config.biased_layers(count)).map(&mut weights).collect::<Result<Vec<_>>>()?;
    let windows = match config.window() {
        Some(side) if !is_decoder => {
            let summaries = t5_summaries(config, packer)?;
            Some(Windows { sides: vec![side; count], summaries, first: Vec::new() })
        }
        _ => None,
    };
    Ok(Stack {
        order: (0..layers.len()).collect(),
        layers,
        norm_first: true,
        heads: config.num_heads,
        head_width: config.d_kv,
        scale: 1.0,
        positions: Positions::Relative {
            weights,
            buckets: config.relative_attention_num_buckets,
            max_distance: config.relative_attention_max_distance,
        },
        windows,
        word_norm: None,
        embedding_norm: None,
        final_norm: Some(packer.norm(&format!("{part}.final_layer_norm"), false, eps)?),
        convolution: None,
    })
}

/// The feed-forward part under `place`.
fn t5_dense(config: &T5Config, place: &str, packer: &mut Packer<'_>) -> Result<Dense> {
    let (width, (kind, is_gated)) = (config.d_model, config.activation()?);
    let (first, second) = if is_gated { ("wi_0", Some("wi_1")) } else { ("wi", None) };
    Ok(Dense {
        inner: packer.linear(&named(place, &[first]), width, false)?,
        gated: second.map(|name| packer.linear(&named(place, &[name]), width, false)).transpose()?,
        outer: packer.linear(&named(place, &["wo"]), config.d_ff, false)?,
        function: kind.into(),
    })
}

/// The experts under `place`.
fn t5_experts(config: &T5Config, sizes: SwitchSizes, place: &str, packer: &mut Packer<'_>) -> Result<Switch> {
    // Scores decide which expert reads a token: they are not rounded.
    let precision = std::mem::replace(&mut packer.precision, Precision::F32);
    let router = packer.linear(&named(place, &["router.classifier"]), config.d_model, sizes.has_bias)?;
    packer.precision = precision;
    let expert = |at: usize| t5_dense(config, &format!("{place}.experts.expert_{at}"), packer);
    Ok(Switch { sizes, router, experts: (0..sizes.count).map(expert).collect::<Result<_>>()? })
}

/// The summaries that the layers of a LongT5's encoder attend to.
fn t5_summaries(config: &T5Config, packer: &mut Packer<'_>) -> Result<Option<Summaries>> {
    let Some(size) = config.summary_size() else { return Ok(None) };
    let attention = |layer: usize| format!("encoder.block.{layer}.layer.0.{}", config.own_attention(false));
    let norm = |layer: usize| {
        packer.norm(&format!("{}.{SUMMARY_NORM}", attention(layer)), false, config.layer_norm_epsilon)
    };
    let norms = (0..config.num_layers).map(norm).collect::<Result<_>>()?;
    Ok(Some(Summaries {
        size,
        norms,
        weights: packer.values(&format!("{}.{SUMMARY_BIASES}.weight", attention(0)))?,
        buckets: config.relative_attention_num_buckets,
        max_distance: config.relative_attention_max_distance,
    }))
}

fn bart_stack(config: &BartConfig, is_decoder: bool, packer: &mut Packer<'_>) -> Result<Stack> {
    let (part, count, heads, inner) = if is_decoder {
        ("decoder", config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim)
    } else {
        ("encoder", config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim)
    };
    let part = &format!("{}.{part}", config.family.body());
    let width = config.d_model;
    let mut layers = Vec::with_capacity(count);
    for i in 0..count {
        let at = format!("{part}.layers.{i}");
        let norm = |packer: &mut Packer<'_>, name: &str| packer.norm(&format!("{at}.{name}"), true, EPSILON);
        let (attention, has_bias) = (format!("{at}.self_attn"), config.attention_has_bias());
        let names = config.family.own_projections(is_decoder);
        let own = SelfAttention {
            inputs: packer.linear(&named(&attention, &names[..3]), width, has_bias)?,
            output: packer.linear(&named(&attention, &names[3..]), width, has_bias)?,
            norm: norm(packer, "self_attn_layer_norm")?,
        };
        let cross = if is_decoder {
            let attention = format!("{at}.encoder_attn");
            Some(CrossAttention {
                queries: packer.linear(&named(&attention, &["q_proj"]), width, has_bias)?,
                sources: packer.linear(&named(&attention, &["k_proj", "v_proj"]), width, has_bias)?,
                output: packer.linear(&named(&attention, &["out_proj"]), width, has_bias)?,
                norm: norm(packer, "encoder_attn_layer_norm")?,
            })
        } else {
            None
        };
        let feed_forward = FeedForward {
            dense: FeedPart::Dense(Dense {
                inner: packer.linear(&named(&at, &["fc1"]), width, true)?,
                gated: None,
                outer: packer.linear(&named(&at, &["fc2"]), inner, true)?,
                function: config.activation()?.into(),
            }),
            norm: norm(packer, "final_layer_norm")?,
        };
        layers.push(Layer { own, cross, feed_forward });
    }
    let mut norm = |name: &str| packer.norm(&format!("{part}.{name}"), true, EPSILON);
    let mut embedding_norm = config.normalize_embedding.then(|| norm("layernorm_embedding")).transpose()?;
    let final_norm = config.normalize_before.then(|| norm(config.family.final_norm())).transpose()?;
    let is_first = is_decoder && config.family.norms_bare_tokens();
    let word_norm = if is_first { embedding_norm.take() } else { None };
    let count = if is_decoder { config.positions(true) } else { config.most_input() };
    Ok(Stack {
        order: (0..layers.len()).collect(),
        layers,
        norm_first: config.normalize_before,
        heads,
        head_width: width / heads,
        scale: ((width / heads) as f32).powf(-0.5),
        positions: match config.family.positions() {
            PositionKind::Learned { offset } => Positions::Learned {
                table: packer.values(&format!("{part}.embed_positions.weight"))?,
                offset,
                count,
            },
            PositionKind::Sinusoids => Positions::Sinusoids { count },
            PositionKind::CountedSinusoids => Positions::CountedSinusoids { pad: config.pad_token_id, count },
        },
        windows: Some(config.windows())
            .filter(|sides| !is_decoder && !sides.is_empty())
            .map(|sides| Windows { sides, summaries: None, first: Vec::new() }),
        word_norm,
        embedding_norm,
        final_norm,
        convolution: None,
    })
}
