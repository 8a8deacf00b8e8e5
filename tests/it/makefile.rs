//! The environment of the Makefile's recipes.

use std::path::Path;
use std::process::Command;

#[test]
fn recipes_build_into_target_wherever_cargo_is_told_to_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for given in [&[][..], &["CARGO_TARGET_DIR=/nonexistent"]] {
        let mut make = Command::new("make");
        make.current_dir(&root).args(["-s", "--eval", "show: ; @echo built in $${CARGO_TARGET_DIR:-target}", "show"]);
        let shown = make.args(given).env("CARGO_TARGET_DIR", "/nonexistent").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), "built in target", "{given:?}: {shown:?}");
    }
}
