//! Prompt check, render, image check: the example endpoints, as a user deploys them.

use serde_json::{Value, json};

use crate::api::{self, Api, root};

async fn run(api: &Api, prompt: &str) -> Value {
    let id = api.submit("render-checked", json!({"prompt": prompt, "width": 128, "height": 96})).await;
    api.ended(&id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_checked_before_the_render_and_the_picture_after_it() {
    let (stack, _dir) = api::stack(&[]);
    for example in ["prompt-check", "image-check", "render-checked"] {
        let path = root().join("sdk/examples").join(example);
        let _ = stack.stoke_ok(&["deploy", &path.to_string_lossy()]);
    }
    let api = Api::of(&stack);

    let allowed = run(&api, "a quiet harbour at dawn").await;
    assert_eq!(allowed["state"], "succeeded", "{allowed}");
    let steps = allowed["steps"].as_array().unwrap();
    let said: Vec<(&Value, &Value)> = steps.iter().map(|step| (&step["name"], &step["decision"])).collect();
    assert_eq!(said, [(&json!("prompt-check"), &json!("allow")), (&json!("image-check"), &json!("allow"))]);
    for step in steps {
        assert!(step["timing"]["run_ms"].is_u64() && step["job_id"].is_string(), "{step}");
    }
    assert!(steps[1]["scores"]["dark"].is_number(), "the picture that was rendered was looked at");
    let picture = allowed["result"]["url"].as_str().unwrap();
    let bytes = api.request("GET", picture).send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap();
    assert!(bytes.starts_with(b"\x89PNG"));

    let rejected = run(&api, "a brutal massacre, blood and corpses").await;
    assert_eq!((&rejected["state"], &rejected["error"]["code"]), (&json!("failed"), &json!("rejected")));
    assert_eq!(rejected["attempts"], json!([]), "the render never started");
    assert_eq!(rejected["steps"][0]["decision"], "reject");
    assert!(rejected["steps"][0]["timing"]["run_ms"].is_u64());
    assert_eq!(rejected["steps"][1]["job_id"], Value::Null);
    let shown = stack.stoke_ok(&["get", rejected["id"].as_str().unwrap()]);
    assert!(shown.contains("prompt-check") && shown.contains("reject"), "{shown}");
}
