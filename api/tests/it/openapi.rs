//! The committed API description equals the generated one.

use std::path::Path;

#[test]
fn the_committed_document_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let fresh = format!("{}\n", stokehold_api::openapi::json());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == fresh, "api/openapi.json is not what the code says: run this test with BLESS=1 and commit it");
}
