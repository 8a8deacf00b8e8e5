//! The usage of a stream of `/openai/v1`, which every engine is asked for.

use serde_json::{Value, json};

use crate::openai::{CHAT, data, handler, output, server, streamed};
use crate::stack::Stack;
use crate::worker::Worker;

#[tokio::test]
async fn an_engine_is_asked_for_the_usage_and_only_clients_that_asked_get_it() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    stack.deploy(handler("fn", json!({"openai": "chat"}))).await;
    let worker = Worker::join(&stack).await;
    let chunks =
        [json!({"choices": [{"delta": {"content": "a"}}]}), json!({"choices": [], "usage": {"prompt_tokens": 2}})];
    let asking = json!({"include_usage": true});
    for (model, options, sent, gets) in [
        ("chat", Value::Null, asking.clone(), 1),
        ("chat", json!({"include_usage": false}), asking.clone(), 1),
        ("chat", asking.clone(), asking.clone(), 2),
        ("fn", Value::Null, Value::Null, 2),
    ] {
        let mut body = streamed(model);
        if !options.is_null() {
            body["stream_options"] = options.clone();
        }
        let (answer, ()) = tokio::join!(stack.post(CHAT, &body).send(), async {
            let lease = worker.lease().await;
            let input = lease["input"].get("body").unwrap_or(&lease["input"]);
            assert_eq!((&input["stream_options"], &input["model"]), (&sent, &json!(model)), "{options}");
            worker.tell(&lease, output(0, chunks[0].clone())).await;
            worker.tell(&lease, output(1, chunks[1].clone())).await;
            worker.succeed(&lease, json!(chunks)).await;
        });
        let mut expected: Vec<String> = chunks[..gets].iter().map(Value::to_string).collect();
        expected.push("[DONE]".to_owned());
        assert_eq!(data(&answer.unwrap().text().await.unwrap()), expected, "{model} {options}");
    }
}
