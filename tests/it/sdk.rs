//! The SDKs against the real stack: each language's own script, run by its own runtime.

use std::process::Command;

use crate::api::{self, root};

fn run(stack: &stokehold_tests::stack::Stack, command: &mut Command) {
    let output = command.env("STOKE_URL", &stack.url).env("STOKE_TOKEN", &stack.token).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", text(&output.stdout), text(&output.stderr), stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_speaks_to_the_real_stack() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("shout.py")]);
    let python = std::env::var("STOKE_TEST_PYTHON").expect("`make test` names a Python with the stokehold wheel");
    run(&stack, Command::new(python).arg(api::handler("../sdk.py")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_sdk_speaks_to_the_real_stack() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let sdk = root().join("sdk/js/dist/esm/index.js");
    assert!(sdk.exists(), "{} is missing: run `npm run build` in sdk/js", sdk.display());
    run(&stack, Command::new("node").arg(api::handler("../sdk.mjs")).arg(sdk));
}
