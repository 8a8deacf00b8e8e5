//! The storage format of weights: the element type, and quantization.

use crate::Error;
use crate::fields::Fields;
use crate::parameters::Parameters;

/// Element type of weights that are not quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// Two bytes.
    Float16,
    /// Two bytes.
    Bfloat16,
    /// Four bytes.
    Float32,
}

impl Dtype {
    /// Parses the name of a type in `config.json` or on an engine's command line.
    ///
    /// # Errors
    /// If the name is unknown.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float16" | "half" => Ok(Self::Float16),
            "bfloat16" => Ok(Self::Bfloat16),
            "float32" | "float" => Ok(Self::Float32),
            _ => Err(Error::invalid(format!("dtype {name} is unknown; use float16, bfloat16 or float32"))),
        }
    }

    /// Name in the engines' options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
        }
    }

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 => 4,
        }
    }
}

/// What quantization covers. Embeddings, the output head, norms and routers are never quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Matrices of attention, feed-forward networks and experts.
    Linear,
    /// Matrices of routed experts.
    Experts,
}

/// How weights are quantized.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    /// Name, e.g. `awq`.
    pub name: String,
    /// Bits of a weight with its part of scales and zero points.
    pub bits: f64,
    /// The covered weights.
    pub scope: Scope,
}

/// fp8 with one scale of 32 bits per matrix or per block of 128 x 128 (DeepSeek-V3, Qwen3-FP8): 0.002 bits or less.
const FP8_BITS: f64 = 8.002;
/// MXFP4: blocks of 32 weights of 4 bits share a scale of 8 bits (OCP Microscaling Formats 1.0, section 5.2).
const MXFP4_BITS: f64 = 4.0 + 8.0 / 32.0;
/// NVFP4: blocks of 16 weights of 4 bits share an fp8 scale.
const NVFP4_BITS: f64 = 4.0 + 8.0 / 16.0;
/// NF4 of bitsandbytes: blocks of 64 weights share a scale of 32 bits (QLoRA, arXiv 2305.14314, section 3).
const NF4_BITS: f64 = 4.0 + 32.0 / 64.0;
/// NF4 with double quantization: 0.127 bits per weight for scales (same source).
const NF4_DOUBLE_BITS: f64 = 4.127;
const INT8_BITS: f64 = 8.0;

/// Bits with a float16 scale and a zero point for each group; a group size of -1 is a whole row.
fn grouped(bits: f64, group: Option<i64>, has_zeros: bool) -> f64 {
    match group.filter(|group| *group > 0) {
        #[expect(clippy::cast_precision_loss, reason = "a group has a few hundred weights")]
        Some(group) => bits + (16.0 + if has_zeros { bits } else { 0.0 }) / group as f64,
        None => bits,
    }
}

impl Format {
    fn new(name: &str, bits: f64, scope: Scope) -> Self {
        Self { name: name.to_owned(), bits, scope }
    }

    /// A quantization that the engine does while it loads unquantized weights.
    ///
    /// # Errors
    /// If the engine cannot do it, e.g. `awq`, which needs quantized weights.
    pub fn on_load(name: &str) -> Result<Self, Error> {
        match name {
            "fp8" => Ok(Self::new("fp8", FP8_BITS, Scope::Linear)),
            "bitsandbytes" => Ok(Self::new("bitsandbytes", NF4_BITS, Scope::Linear)),
            _ => Err(Error::invalid(format!(
                "the weights are not quantized with {name}; engines can quantize while loading with fp8 or bitsandbytes only, so name a model that has {name} weights"
            ))),
        }
    }

    /// Reads `quantization_config` or `compression_config`.
    pub(crate) fn parse(config: Fields<'_>) -> Result<Option<Self>, Error> {
        let Some(own) = config.object("quantization_config").or(config.object("compression_config")) else {
            return Ok(None);
        };
        let number = |name: &str| own.get(name).and_then(serde_json::Value::as_i64);
        let method = own.text("quant_method").unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "a few bits")]
        let bits = |default: i64| number("bits").or(number("w_bit")).unwrap_or(default) as f64;
        let group = number("group_size").or(number("q_group_size"));
        let linear = |name: &str, bits| Ok(Some(Self::new(name, bits, Scope::Linear)));
        match method {
            "awq" => linear(method, grouped(bits(4), group.or(Some(128)), own.flag("zero_point", true))),
            "gptq" | "gptq_marlin" => linear("gptq", grouped(bits(4), group.or(Some(128)), true)),
            "fp8" | "fbgemm_fp8" => linear(method, FP8_BITS),
            "mxfp4" => Ok(Some(Self::new(method, MXFP4_BITS, Scope::Experts))),
            "bitsandbytes" if own.flag("load_in_8bit", false) => linear(method, INT8_BITS),
            "bitsandbytes" if own.flag("bnb_4bit_use_double_quant", false) => linear(method, NF4_DOUBLE_BITS),
            "bitsandbytes" => linear(method, NF4_BITS),
            "modelopt" | "modelopt_fp4" => match own.text("quant_algo").unwrap_or("FP8") {
                "FP8" => linear(method, FP8_BITS),
                "NVFP4" => linear(method, NVFP4_BITS),
                other => Err(unknown(&format!("modelopt {other}"))),
            },
            "compressed-tensors" => Self::compressed(own),
            _ => Err(unknown(method)),
        }
    }

    /// `config_groups` of compressed-tensors. The groups differ in the modules that they cover; the one with the most
    /// bits decides.
    fn compressed(own: Fields<'_>) -> Result<Option<Self>, Error> {
        let groups =
            own.object("config_groups").map(|groups| groups.0.values().collect::<Vec<_>>()).unwrap_or_default();
        let mut most: Option<f64> = None;
        for group in groups {
            let Some(weights) = group.as_object().and_then(|group| Fields(group).object("weights")) else { continue };
            let Some(bits) = weights.whole(&["num_bits"], 16)? else { continue };
            let size = weights.get("group_size").and_then(serde_json::Value::as_i64);
            #[expect(clippy::cast_precision_loss, reason = "a few bits")]
            let bits = match (bits, weights.text("type")) {
                (4, Some("float")) => NVFP4_BITS,
                (8, Some("float")) => FP8_BITS,
                (bits, _) => grouped(bits as f64, size, !weights.flag("symmetric", true)),
            };
            most = Some(most.map_or(bits, |most| most.max(bits)));
        }
        let Some(bits) = most else { return Err(unknown("compressed-tensors without config_groups")) };
        Ok(Some(Self::new("compressed-tensors", bits, Scope::Linear)))
    }
}

fn unknown(method: &str) -> Error {
    Error::invalid(format!(
        "quantization {method:?} is unknown; known are awq, gptq, fp8, mxfp4, bitsandbytes, modelopt and compressed-tensors"
    ))
}

impl Parameters {
    /// Bytes of the weights.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub fn bytes(&self, dtype: Dtype, format: Option<&Format>) -> u64 {
        let quantized = match format.map(|format| format.scope) {
            None => 0,
            Some(Scope::Linear) => self.attention + self.mlp + self.experts,
            Some(Scope::Experts) => self.experts,
        };
        let plain = (self.total() - quantized) * dtype.bytes();
        let bits = format.map_or(0.0, |format| format.bits);
        plain + (quantized as f64 * bits / 8.0).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn parse(own: Value) -> Result<Option<Format>, Error> {
        let config = json!({"quantization_config": own});
        Format::parse(Fields(config.as_object().unwrap()))
    }

    #[test]
    fn bits_include_scales_and_zero_points() {
        for (own, bits) in [
            (json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}), 4.15625),
            (json!({"quant_method": "gptq", "bits": 8, "group_size": 128}), 8.1875),
            (json!({"quant_method": "gptq", "bits": 4, "group_size": -1}), 4.0),
            (json!({"quant_method": "mxfp4"}), 4.25),
            (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), 4.5),
            (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), 4.5),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
                    {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": true}}}}),
                4.125,
            ),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
                    {"num_bits": 8, "type": "float"}}}}),
                8.002,
            ),
        ] {
            let format = parse(own.clone()).unwrap().unwrap();
            assert!((format.bits - bits).abs() < 1e-9, "{own}: {}", format.bits);
        }
        let error = parse(json!({"quant_method": "aqlm"})).unwrap_err().to_string();
        assert!(error.contains("aqlm") && error.contains("known are awq"), "{error}");
    }

    #[test]
    fn engines_quantize_few_formats_while_loading() {
        assert!((Format::on_load("fp8").unwrap().bits - 8.002).abs() < 1e-9);
        let error = Format::on_load("awq").unwrap_err().to_string();
        assert!(error.contains("name a model that has awq weights"), "{error}");
    }
}
