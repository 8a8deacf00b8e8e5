//! Reads the shape of a model from its `config.json`, as Hugging Face's transformers writes it. A default that a file
//! may leave out is that of the model's configuration class in transformers.

use serde_json::Value;

use crate::error::Error;
use crate::fields::Fields;
use crate::format::{Dtype, Format};
use crate::shape::{Attention, Experts, Mlp, Shape, Windows};

// Bounds of what a file may say: no product of these overflows 64 bits.
pub(crate) const WIDTH_MAX: u64 = 1 << 20;
pub(crate) const HIDDEN_MAX: u64 = 1 << 17;
pub(crate) const LAYERS_MAX: u64 = 1 << 10;
const EXPERTS_MAX: u64 = 1 << 11;
pub(crate) const HEADS_MAX: u64 = 1 << 11;
pub(crate) const VOCAB_MAX: u64 = 1 << 22;
pub(crate) const TOKENS_MAX: u64 = 1 << 27;

/// Families whose parameters are counted, by `model_type`.
const FAMILIES: [&str; 18] = [
    "llama",
    "mistral",
    "ministral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi3",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "falcon",
    "granite",
    "smollm3",
];

/// A model, as its configuration describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `model_type`, e.g. `qwen3`.
    pub family: String,
    /// The shape of the decoder.
    pub shape: Shape,
    /// Element type of the weights.
    pub dtype: Dtype,
    /// Quantization of the weights.
    pub format: Option<Format>,
    /// The longest sequence that the model was made for, in tokens; `None` if the file does not say.
    pub context: Option<u64>,
    /// Whether [`Shape::parameters`] is right: the family is known, and there is no encoder for images or audio.
    pub is_counted: bool,
}

impl Model {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// If it is not the configuration of a language model, or a member is missing or out of bounds.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value: Value = serde_json::from_str(text).map_err(|error| Error::invalid(format!("not JSON: {error}")))?;
        let Some(top) = value.as_object().map(Fields) else { return Err(Error::invalid("not a JSON object")) };
        // The decoder of a model for text and images.
        let inner = top.object("text_config").or(top.object("llm_config"));
        let own = inner.unwrap_or(top);
        let family = own.text("model_type").or(top.text("model_type")).unwrap_or_default().to_owned();
        if top.flag("is_encoder_decoder", false) {
            return Err(Error::invalid(format!("{family} is an encoder and a decoder; engines serve decoders")));
        }
        let has_encoder = ["vision_config", "audio_config"].iter().any(|name| top.object(name).is_some());
        let dtype = [own, top].iter().find_map(|fields| fields.text("torch_dtype").or(fields.text("dtype")));
        Ok(Self {
            shape: shape(own, &family)?,
            dtype: dtype.map(Dtype::parse).transpose()?.unwrap_or(Dtype::Bfloat16),
            format: match Format::parse(own)? {
                Some(format) => Some(format),
                None => Format::parse(top)?,
            },
            context: own.whole(&["max_position_embeddings", "n_positions", "max_seq_len"], TOKENS_MAX)?,
            is_counted: !has_encoder && FAMILIES.contains(&family.as_str()),
            family,
        })
    }
}

/// Size of all weights in bytes, from a `model.safetensors.index.json`.
///
/// # Errors
/// If it is not such an index.
pub fn index_bytes(text: &str) -> Result<u64, Error> {
    let value: Value = serde_json::from_str(text).map_err(|error| Error::invalid(format!("not JSON: {error}")))?;
    // Some writers store a float.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in bytes, 0 if it is negative")]
    let size = match &value["metadata"]["total_size"] {
        Value::Number(number) => number.as_u64().or(number.as_f64().map(|size| size as u64)),
        _ => None,
    };
    size.filter(|size| *size > 0).ok_or_else(|| Error::invalid("metadata.total_size is missing"))
}

fn shape(own: Fields<'_>, family: &str) -> Result<Shape, Error> {
    let layers = own.need(&["num_hidden_layers", "n_layer", "num_layers"], LAYERS_MAX)?;
    let is_gemma = family.starts_with("gemma");
    let is_falcon = family == "falcon";
    let has_two_falcon_norms = own.flag("new_decoder_architecture", false) || !own.flag("parallel_attn", true);
    let norms = match family {
        "gemma2" | "gemma3" | "gemma3_text" => 4,
        "falcon" if !has_two_falcon_norms => 1,
        _ => 2,
    };
    let is_tied = own.flag("tie_word_embeddings", is_gemma || is_falcon || family == "smollm3");
    Ok(Shape {
        hidden: own.need(&["hidden_size", "n_embd"], HIDDEN_MAX)?,
        layers,
        vocab: own.need(&["vocab_size"], VOCAB_MAX)?,
        is_tied,
        attention: attention(own, family)?,
        mlp: mlp(own, family)?,
        experts: experts(own, family, layers)?,
        norms,
        has_norm_bias: is_falcon,
        windows: windows(own, family, layers)?,
    })
}

fn attention(own: Fields<'_>, family: &str) -> Result<Attention, Error> {
    let heads = own.need(&["num_attention_heads", "n_head"], HEADS_MAX)?;
    if let Some(kv_rank) = own.whole(&["kv_lora_rank"], WIDTH_MAX)? {
        return Ok(Attention::Latent {
            heads,
            q_rank: own.whole(&["q_lora_rank"], WIDTH_MAX)?.unwrap_or(0),
            kv_rank,
            nope_dim: own.need(&["qk_nope_head_dim"], HEADS_MAX)?,
            rope_dim: own.need(&["qk_rope_head_dim"], HEADS_MAX)?,
            value_dim: own.need(&["v_head_dim"], HEADS_MAX)?,
        });
    }
    let kv_heads = match family {
        // One pair of heads for all queries in the first architecture, `num_kv_heads` in the second.
        "falcon" if own.flag("new_decoder_architecture", false) => own.whole(&["num_kv_heads", "n_head_kv"], heads)?,
        "falcon" if own.flag("multi_query", true) => Some(1),
        _ => own.whole(&["num_key_value_heads", "num_kv_heads", "n_head_kv"], heads)?,
    };
    let head_dim = match own.whole(&["head_dim"], HEADS_MAX)? {
        Some(head_dim) => head_dim,
        None => match family {
            "qwen3" => 128,
            "gpt_oss" => 64,
            name if name.starts_with("gemma") => 256,
            _ => own.need(&["hidden_size", "n_embd"], HIDDEN_MAX)? / heads,
        },
    };
    let has_bias = own.flag("attention_bias", family == "gpt_oss");
    Ok(Attention::Grouped {
        heads,
        kv_heads: kv_heads.unwrap_or(heads).max(1),
        head_dim,
        has_qkv_bias: match family {
            "qwen2" => true,
            "qwen2_moe" => own.flag("qkv_bias", true),
            "falcon" => own.flag("bias", false),
            _ => has_bias,
        },
        has_output_bias: match family {
            "qwen2" | "qwen2_moe" => false,
            "falcon" => own.flag("bias", false),
            _ => has_bias,
        },
        qk_norm: if matches!(family, "qwen3" | "qwen3_moe" | "gemma3" | "gemma3_text") { 2 * head_dim } else { 0 },
        // Attention sinks.
        extra: if family == "gpt_oss" { heads } else { 0 },
    })
}

fn mlp(own: Fields<'_>, family: &str) -> Result<Mlp, Error> {
    let is_falcon = family == "falcon";
    let intermediate = match own.whole(&["intermediate_size", "ffn_hidden_size", "n_inner"], WIDTH_MAX)? {
        Some(intermediate) => intermediate,
        None => 4 * own.need(&["hidden_size", "n_embd"], HIDDEN_MAX)?,
    };
    Ok(Mlp {
        intermediate,
        matrices: if is_falcon { 2 } else { 3 },
        has_bias: own.flag(if is_falcon { "bias" } else { "mlp_bias" }, false),
    })
}

fn experts(own: Fields<'_>, family: &str, layers: u64) -> Result<Option<Experts>, Error> {
    let count = own.whole(&["num_local_experts", "num_experts", "n_routed_experts"], EXPERTS_MAX)?.unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    let intermediate = own.need(&["moe_intermediate_size", "intermediate_size"], WIDTH_MAX)?;
    let shared = match own.whole(&["shared_expert_intermediate_size"], WIDTH_MAX)? {
        Some(shared) => shared,
        None => own.whole(&["n_shared_experts"], 64)?.unwrap_or(0) * intermediate,
    };
    let dense_first = own.whole(&["first_k_dense_replace"], layers)?.unwrap_or(0);
    let step = own.whole(&["decoder_sparse_step", "moe_layer_freq"], layers)?.unwrap_or(1).max(1);
    let dense_only = own.get("mlp_only_layers").and_then(Value::as_array).map_or(0, |list| list.len() as u64);
    let hidden = own.need(&["hidden_size"], HIDDEN_MAX)?;
    Ok(Some(Experts {
        count,
        per_token: own.whole(&["num_experts_per_tok", "experts_per_token"], count)?.unwrap_or(1),
        intermediate,
        shared_intermediate: shared,
        router_extra: match family {
            // The gate of the shared expert.
            "qwen2_moe" => hidden,
            "gpt_oss" => count,
            // `e_score_correction_bias`.
            "deepseek_v3" => count,
            _ => 0,
        },
        has_bias: family == "gpt_oss",
        layers: ((layers - dense_first) / step).saturating_sub(dense_only),
    }))
}

fn windows(own: Fields<'_>, family: &str, layers: u64) -> Result<Windows, Error> {
    let Some(tokens) = own.whole(&["sliding_window"], TOKENS_MAX)?.filter(|tokens| *tokens > 0) else {
        return Ok(Windows { stateless_layers: stateless(own), ..Windows::default() });
    };
    let kinds = own.texts("layer_types");
    let count = if kinds.is_empty() {
        match family {
            // Every other layer, the first one included.
            "gemma2" | "gpt_oss" => layers.div_ceil(2),
            "gemma3" | "gemma3_text" => {
                let pattern = own.whole(&["sliding_window_pattern"], LAYERS_MAX)?.unwrap_or(6).max(1);
                layers - layers / pattern
            }
            "mistral" => layers,
            "qwen2" | "qwen3" if own.flag("use_sliding_window", false) => {
                layers - own.whole(&["max_window_layers"], layers)?.unwrap_or(layers)
            }
            // A window that engines do not use for this family, e.g. that of Phi-3.
            _ => 0,
        }
    } else {
        kinds.iter().filter(|kind| **kind == "sliding_attention").count() as u64
    };
    Ok(Windows { layers: count.min(layers), tokens, stateless_layers: stateless(own) })
}

/// Layers of linear attention and state-space layers, whose state does not grow.
fn stateless(own: Fields<'_>) -> u64 {
    let kinds = own.texts("layer_types");
    kinds.iter().filter(|kind| matches!(**kind, "linear_attention" | "mamba" | "conv" | "recurrent")).count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn llama() -> Value {
        json!({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 286, "torch_dtype": "float32",
        })
    }

    #[test]
    fn a_tiny_llama_is_counted_by_hand() {
        let model = Model::parse(&llama().to_string()).unwrap();
        // Embedding and head 2 x 286 x 64; a layer 64 x (64 + 32 + 32 + 64) + 3 x 64 x 128 + 2 x 64; the last norm 64.
        assert_eq!(model.shape.parameters().total(), 2 * 286 * 64 + 2 * (64 * 192 + 3 * 64 * 128 + 128) + 64);
        assert_eq!((model.dtype, model.context, model.is_counted), (Dtype::Float32, None, true));
    }

    #[test]
    fn errors_name_the_member() {
        let with = |name: &str, value: Value| {
            let mut config = llama();
            config[name] = value;
            Model::parse(&config.to_string()).unwrap_err().to_string()
        };
        assert_eq!(with("hidden_size", json!(null)), "hidden_size is missing");
        assert_eq!(with("vocab_size", json!(0)), "vocab_size is 0");
        let error = with("num_hidden_layers", json!(99_999));
        assert_eq!(error, "num_hidden_layers is 99999; it must be a whole number from 0 to 1024");
        assert!(with("torch_dtype", json!("int3")).contains("use float16, bfloat16 or float32"));
        assert!(Model::parse("[]").unwrap_err().to_string().contains("not a JSON object"));
        assert!(Model::parse("{").unwrap_err().to_string().starts_with("not JSON"));
    }

    #[test]
    fn a_model_with_an_image_encoder_is_not_counted() {
        let config = json!({"model_type": "gemma3", "text_config": llama(), "vision_config": {"hidden_size": 1152}});
        let model = Model::parse(&config.to_string()).unwrap();
        assert_eq!((model.family.as_str(), model.is_counted), ("llama", false));
    }

    #[test]
    fn an_index_has_the_size_of_all_weights() {
        assert_eq!(index_bytes(r#"{"metadata": {"total_size": 16060522496}}"#).unwrap(), 16_060_522_496);
        assert_eq!(index_bytes(r#"{"metadata": {"total_size": 1e9}}"#).unwrap(), 1_000_000_000);
        assert!(index_bytes("{}").unwrap_err().to_string().contains("total_size"));
    }
}
