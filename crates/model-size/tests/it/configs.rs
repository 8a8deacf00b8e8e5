//! The configurations in `tests/configs`.

use std::path::Path;

use stokehold_model_size::Model;

/// The model in `tests/configs/{name}.json`.
pub(crate) fn model(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/configs/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Model::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}
