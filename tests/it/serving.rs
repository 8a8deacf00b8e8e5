//! `stoke serve` with llama.cpp's own server and a random model that is made on the spot.

use std::path::Path;

use serde_json::{Value, json};
use stokehold_tests::stack::stoke_binary;

use crate::api::{self, Api};
use crate::weights::Origin;

/// Shape of the model: two layers, four heads that share two pairs of keys and values.
const HIDDEN: u64 = 64;
const INNER: u64 = 128;
const KV: u64 = 32;
const LAYERS: usize = 2;

/// Writes a GGUF file (version 3) of a llama with a vocabulary of bytes and letters and random weights.
#[derive(Default)]
struct Gguf {
    entries: Vec<u8>,
    entry_count: u64,
    infos: Vec<u8>,
    data: Vec<u8>,
    tensor_count: u64,
    seed: u32,
}

impl Gguf {
    fn text(into: &mut Vec<u8>, text: &str) {
        into.extend((text.len() as u64).to_le_bytes());
        into.extend(text.as_bytes());
    }

    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) {
        Self::text(&mut self.entries, key);
        self.entries.extend(kind.to_le_bytes());
        self.entries.extend(value);
        self.entry_count += 1;
    }

    fn number(&mut self, key: &str, number: u32) {
        self.entry(key, 4, &number.to_le_bytes());
    }

    fn word(&mut self, key: &str, word: &str) {
        let mut value = Vec::new();
        Self::text(&mut value, word);
        self.entry(key, 8, &value);
    }

    fn array(&mut self, key: &str, kind: u32, count: usize, items: &[u8]) {
        let mut value = kind.to_le_bytes().to_vec();
        value.extend((count as u64).to_le_bytes());
        value.extend(items);
        self.entry(key, 9, &value);
    }

    /// A tensor of float32: ones for a norm, else random numbers from -0.05 to 0.05.
    fn tensor(&mut self, name: &str, shape: &[u64]) {
        Self::text(&mut self.infos, name);
        self.infos.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|size| self.infos.extend(size.to_le_bytes()));
        self.infos.extend(0_u32.to_le_bytes());
        self.infos.extend((self.data.len() as u64).to_le_bytes());
        for _ in 0..shape.iter().product() {
            self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = (self.seed >> 8) as f32 / (1 << 24) as f32 * 0.1 - 0.05;
            let value = if shape.len() == 1 { 1.0 } else { random };
            self.data.extend(value.to_le_bytes());
        }
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensor_count += 1;
    }

    fn write(self, path: &Path) {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(self.tensor_count.to_le_bytes());
        file.extend(self.entry_count.to_le_bytes());
        file.extend(self.entries);
        file.extend(self.infos);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(self.data);
        std::fs::write(path, file).unwrap();
    }
}

fn tiny(path: &Path) {
    let mut tokens: Vec<(String, i32)> =
        [("<unk>", 2), ("<s>", 3), ("</s>", 3)].map(|(name, kind)| (name.to_owned(), kind)).into();
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    tokens.extend(('a'..='z').map(|letter| (letter.to_string(), 1)));
    tokens.push(("\u{2581}".to_owned(), 1));
    let vocab = tokens.len() as u64;
    let mut gguf = Gguf { seed: 7, ..Gguf::default() };
    gguf.word("general.architecture", "llama");
    for (key, number) in [
        ("context_length", 512),
        ("embedding_length", HIDDEN as u32),
        ("block_count", LAYERS as u32),
        ("feed_forward_length", INNER as u32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 16),
        ("vocab_size", vocab as u32),
    ] {
        gguf.number(&format!("llama.{key}"), number);
    }
    gguf.entry("llama.attention.layer_norm_rms_epsilon", 6, &1e-5_f32.to_le_bytes());
    gguf.word("tokenizer.ggml.model", "llama");
    let mut names = Vec::new();
    tokens.iter().for_each(|(name, _)| Gguf::text(&mut names, name));
    gguf.array("tokenizer.ggml.tokens", 8, tokens.len(), &names);
    gguf.array("tokenizer.ggml.scores", 6, tokens.len(), &vec![0; 4 * tokens.len()]);
    let kinds: Vec<u8> = tokens.iter().flat_map(|(_, kind)| kind.to_le_bytes()).collect();
    gguf.array("tokenizer.ggml.token_type", 5, tokens.len(), &kinds);
    gguf.number("tokenizer.ggml.bos_token_id", 1);
    gguf.number("tokenizer.ggml.eos_token_id", 2);
    gguf.tensor("token_embd.weight", &[HIDDEN, vocab]);
    gguf.tensor("output_norm.weight", &[HIDDEN]);
    gguf.tensor("output.weight", &[HIDDEN, vocab]);
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attn_norm", vec![HIDDEN]),
            ("ffn_norm", vec![HIDDEN]),
            ("attn_q", vec![HIDDEN, HIDDEN]),
            ("attn_k", vec![HIDDEN, KV]),
            ("attn_v", vec![HIDDEN, KV]),
            ("attn_output", vec![HIDDEN, HIDDEN]),
            ("ffn_gate", vec![HIDDEN, INNER]),
            ("ffn_up", vec![HIDDEN, INNER]),
            ("ffn_down", vec![INNER, HIDDEN]),
        ] {
            gguf.tensor(&format!("blk.{layer}.{name}.weight"), &shape);
        }
    }
    gguf.write(path);
}

/// Writes a LoRA adapter of rank 4 that changes the output of `tiny` so much that its first token is another one.
fn adapter(path: &Path) {
    let vocab = 3 + 256 + 26 + 1;
    let mut gguf = Gguf { seed: 11, ..Gguf::default() };
    gguf.word("general.architecture", "llama");
    gguf.word("general.type", "adapter");
    gguf.word("adapter.type", "lora");
    gguf.entry("adapter.lora.alpha", 6, &10_000_f32.to_le_bytes());
    gguf.tensor("output.weight.lora_a", &[HIDDEN, 4]);
    gguf.tensor("output.weight.lora_b", &[4, vocab]);
    gguf.write(path);
}

#[test]
fn without_a_hub_the_error_names_what_works() {
    let serve = |options: &[&str]| {
        let mut command = std::process::Command::new(stoke_binary());
        command.args(["serve", "hf://org/model", "--dry-run"]).args(options).env("HF_ENDPOINT", "http://127.0.0.1:1");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, error) = serve(&[]);
    assert!(error.contains("cannot reach http://127.0.0.1:1") && error.contains("with --config"), "{error}");
    assert_eq!(code, Some(3), "the exit code of a server that cannot be reached");
    let config = api::root().join("crates/model-size/tests/configs/qwen3-8b.json");
    let (code, shown, error) = serve(&["--config", config.to_str().unwrap()]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{error}");
    assert!(shown.contains("vram_gib = 19.9") && shown.contains("8,190,735,360 parameters"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gguf_file_becomes_an_endpoint_that_answers() {
    let (stack, dir) = api::stack(&[]);
    let model = dir.path().join("tiny.gguf");
    tiny(&model);
    let (model, folder) = (model.to_str().unwrap(), dir.path().join("served"));
    let options = ["--name", "tiny", "--concurrency", "2", "--out", folder.to_str().unwrap(), "--json"];
    let serve: Vec<&str> = ["serve", model].into_iter().chain(options).collect();

    let dry: Vec<&str> = serve.iter().copied().chain(["--dry-run"]).collect();
    let planned: Value = serde_json::from_str(&stack.stoke_ok(&dry)).unwrap();
    assert_eq!((&planned["model"]["parameters"], &planned["vram_gib"]), (&json!(110_656), &json!(0.0)), "{planned}");
    assert!(!folder.exists(), "a dry run writes nothing");

    let served: Value = serde_json::from_str(&stack.stoke_ok(&serve)).unwrap();
    assert_eq!((&served["deployed"]["version"], &served["max_model_len"]), (&json!(1), &json!(512)), "{served}");
    let (api, messages) = (Api::of(&stack), json!([{"role": "user", "content": "hi"}]));
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 8});
    let id = api.submit("tiny", json!({"path": "/v1/chat/completions", "body": body})).await;
    let job = api.ended(&id).await;
    assert_eq!((&job["state"], &job["result"]["model"]), (&json!("succeeded"), &json!("tiny")), "{job}");
    assert!(job["result"]["usage"]["completion_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{job}");

    let id = api.submit("tiny", json!({"path": "/slots", "method": "GET"})).await;
    let slots = api.ended(&id).await["result"].clone();
    let lengths: Vec<&Value> = slots.as_array().unwrap().iter().map(|slot| &slot["n_ctx"]).collect();
    assert_eq!(lengths, [512, 512], "two slots of the maximum length: {slots}");
    // The same command again deploys nothing new.
    let again: Value = serde_json::from_str(&stack.stoke_ok(&serve)).unwrap();
    assert_eq!(again["deployed"]["version"], 1, "{again}");
}

#[test]
fn an_adapter_of_the_hub_is_pinned_to_its_commit() {
    let origin = Origin::start();
    let config = std::fs::read(api::root().join("crates/model-size/tests/configs/qwen3-8b.json")).unwrap();
    origin.put("/org/model/resolve/c0ffee/config.json", &config);
    origin.put("/org/sql/resolve/c0ffee/adapter_config.json", br#"{"peft_type": "LORA", "r": 24}"#);
    let serve = |adapter: &str| {
        let mut command = std::process::Command::new(stoke_binary());
        command.args(["serve", "hf://org/model", "--dry-run", "--json", "--lora", adapter]);
        command.env("HF_ENDPOINT", &origin.url).env_remove("HF_TOKEN").output().unwrap()
    };
    let output = serve("sql=hf://org/sql");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let planned: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(planned["adapters"], json!([{"model": "model:sql", "source": "hf://org/sql@c0ffee"}]), "{planned}");
    let manifest = planned["files"][0]["text"].as_str().unwrap();
    assert!(manifest.contains("\"--max-loras\", \"1\", \"--max-lora-rank\", \"32\""), "{manifest}");
    let output = serve("sql=hf://org/model");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("org/model has no adapter_config.json; is it a LoRA adapter?"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_changes_the_answers_of_its_base() {
    let (stack, dir) = api::stack(&[]);
    let (model, lora) = (dir.path().join("tiny.gguf"), dir.path().join("sql.gguf"));
    tiny(&model);
    adapter(&lora);
    let (model, lora) = (model.to_str().unwrap(), format!("sql={}", lora.display()));
    for (name, options) in [("plain", vec![]), ("tuned", vec!["--lora", &lora])] {
        let out = dir.path().join(name);
        let options = [&["serve", model, "--name", name, "--out", out.to_str().unwrap()], &options[..]].concat();
        let _ = stack.stoke_ok(&options);
    }
    let api = Api::of(&stack);
    let answer = async |model: &str| {
        let body = json!({"model": model, "prompt": "hi", "max_tokens": 8, "temperature": 0, "ignore_eos": true});
        let response = api.request("POST", "/openai/v1/completions").json(&body).send().await.unwrap();
        let (status, answer) = (response.status(), response.json::<Value>().await.unwrap());
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].clone()
    };
    let (plain, tuned) = (answer("plain").await, answer("tuned:sql").await);
    assert_ne!(plain, tuned);
    assert_eq!(answer("tuned").await, tuned, "every answer of llama.cpp uses the adapter");
}
