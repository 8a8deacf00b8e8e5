//! The order in which an engine gets the lines of a batch.

use serde_json::{Value, json};

use super::{created, line, request, uploaded};
use crate::openai::server;
use crate::stack::Stack;
use crate::worker::Worker;

#[tokio::test]
async fn lines_whose_prompts_begin_alike_run_one_after_the_other() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    let prompt = |n: usize| {
        let rules = ["Translate to French.", "Summarise.", "Answer with one word."][n % 3];
        json!([{"role": "system", "content": rules}, {"role": "user", "content": format!("text {n}")}])
    };
    // What differs before the prompt does not matter.
    let body = |n: usize| json!({"max_tokens": 100 - n, "messages": prompt(n), "model": "chat"});
    let lines: Vec<Value> = (0..12).map(|n| line(&format!("{n}"), "/v1/chat/completions", body(n))).collect();
    created(&stack, &request(&uploaded(&stack, &lines).await)).await;

    let mut rules: Vec<Value> = Vec::new();
    for _ in 0..12 {
        let lease = worker.lease().await;
        rules.push(lease["input"]["body"]["messages"][0]["content"].clone());
        worker.succeed(&lease, json!({"id": "x"})).await;
    }
    let changes = rules.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 2, "{rules:?}");
}
