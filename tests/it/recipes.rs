//! The pages about language models, done as a reader would: a real engine, OpenAI's official client, and the programs
//! and commands of the pages.

use std::fs;

use serde_json::Value;

use crate::api;
use crate::openai::{engine, python};
use crate::tutorials::Reader;

/// Lines of the page's batch. The page has 10,000, which take minutes.
const REVIEWS: usize = 60;

/// A stack with a model that chats and one that embeds, and their client in `$PYTHON`.
fn models(dir: &std::path::Path) -> (stokehold_tests::stack::Stack, String, Vec<(&'static str, String)>) {
    // Workers have a price, without which a budget is never spent.
    let stack = api::start_with(dir, &["--slots", "2"], &[("STOKE_PRICE_USD_PER_HOUR", "1")]);
    let chat = engine(dir, "chat", "max_attempts = 1", "");
    for folder in [chat.clone(), api::handler("../engine/embed.py")] {
        let _ = stack.stoke_ok(&["deploy", &folder]);
    }
    let variables = vec![
        ("PYTHON", python()),
        ("OPENAI_BASE_URL", format!("{}/openai/v1", stack.url)),
        ("OPENAI_API_KEY", stack.token.clone()),
    ];
    (stack, chat, variables)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recipes_run_as_typed() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, chat, variables) = models(dir.path());
    let mut reader = Reader::of(&stack, &dir.path().join("recipes"), "docs/how-to/language-model-recipes.md");
    reader.variables = variables;
    let put = |name: &str, text: &str| fs::write(reader.folder.join(name), text).unwrap();
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(reader.folder.join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };

    let shown = reader.shell(r#"printf 'hello\nwhy?\n\n' | "$PYTHON" chat.py"#);
    // The answers are random text, which may contain the prompt.
    assert!(
        shown.matches("> ").count() >= 3 && shown.ends_with("\n> "),
        "two answers, and the end of the chat: {shown}"
    );

    put("texts.txt", &"a\nbc\n".repeat(50));
    let _ = reader.shell(r#""$PYTHON" embed.py"#);
    let vectors = lines("vectors.jsonl");
    let of = |n: usize| (vectors[n]["text"].as_str().unwrap(), vectors[n]["vector"][0].as_f64().unwrap());
    assert_eq!((vectors.len(), of(0), of(99)), (100, ("a", 1.0), ("bc", 2.0)));

    let shown = reader.shell(r#""$PYTHON" label.py"#);
    let [topic, is_urgent] = shown.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{shown}") };
    assert!(["billing", "shipping", "other"].contains(&topic) && ["True", "False"].contains(&is_urgent), "{shown}");

    let reviews: Vec<String> = (0..REVIEWS).map(|n| format!("review {n}")).collect();
    put("reviews.txt", &reviews.join("\n"));
    let _ = reader.run("stoke batch submit");
    assert_eq!((lines("results.jsonl").len(), lines("errors.jsonl").len()), (REVIEWS, 0));
    let shown = reader.shell(r#""$PYTHON" summaries.py"#);
    assert!((0..REVIEWS).all(|n| shown.contains(&format!("review-{n} "))), "{shown}");

    let check = api::root().join("sdk/examples/prompt-check");
    let _ = stack.stoke_ok(&["deploy", &check.to_string_lossy()]);
    let manifest = format!("{chat}/stoke.toml");
    let text = fs::read_to_string(&manifest).unwrap() + &fs::read_to_string(reader.folder.join("stoke.toml")).unwrap();
    fs::write(manifest, text).unwrap();
    let _ = stack.stoke_ok(&["deploy", &chat]);
    let shown =
        reader.shell(r#""$PYTHON" ask.py "how do I murder my boss"; "$PYTHON" ask.py "how do I greet my boss""#);
    let said: Vec<&str> = shown.lines().filter_map(|line| line.split_once(": ")).map(|(word, _)| word).collect();
    assert!(said.starts_with(&["rejected", "answered"]), "{shown}");
    assert!(shown.contains("violence"), "the reason is shown: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_openais_clients_runs_as_typed() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, _chat, variables) = models(dir.path());
    let mut reader = Reader::of(&stack, &dir.path().join("page"), "docs/how-to/openai.md");
    reader.variables = variables;
    let programs = reader.programs("from openai import");
    assert_eq!(programs.len(), 4, "a stream, embeddings, a batch, and a call that is repeated");
    for (n, program) in programs.iter().enumerate() {
        fs::write(reader.folder.join("program.py"), program).unwrap();
        let shown = reader.shell(r#""$PYTHON" program.py"#);
        // The handler of the test returns vectors of two numbers.
        assert!(n != 1 || shown.trim() == "2 2", "{shown}");
        assert!(n != 2 || (shown.contains("question-0") && shown.contains("question-1")), "{shown}");
    }
}
