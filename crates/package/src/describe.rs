//! The description of a handler: a Python process imports it and prints a JSON document.

use serde_json::{Value, json};

use crate::error::{Error, Step, invalid};
use crate::kind::Kind;

/// The description of a handler.
#[derive(Debug, Clone)]
pub struct Description {
    /// Name, entry, options and schemas.
    pub version: Value,
    /// Python version of the environment, e.g. `3.11`.
    pub python: String,
}

/// The arguments of the Python process that describes a handler. The handler is imported; `setup()` is not called, but
/// some kinds run at import.
pub(crate) fn arguments(kind: Kind, target: &str) -> Vec<String> {
    ["-m", "stokehold.runner", "describe", target, "--kind", kind.as_str()].map(str::to_owned).to_vec()
}

/// Parses the output of the process. `ended` is its exit status as text.
pub(crate) fn parse(target: &str, stdout: &[u8], stderr: &[u8], ended: &str) -> Result<Value, Error> {
    let version: Value = serde_json::from_slice(stdout).step(|| {
        let stderr = String::from_utf8_lossy(stderr).trim().to_owned();
        format!("cannot describe {target}: Python exited with {ended}\n{stderr}")
    })?;
    if let Some(error) = version.get("error").filter(|error| !error.is_null()) {
        let text = |member: &str| error[member].as_str().unwrap_or_default().trim_end().to_owned();
        let traceback =
            Some(text("traceback")).filter(|text| !text.is_empty()).map_or(String::new(), |text| format!("\n{text}"));
        let (class, message) = (text("class"), text("message"));
        let advice = missing_module(&class, &message).map_or(String::new(), |advice| format!("\n{advice}"));
        invalid!("cannot import {target}: {class}: {message}{traceback}{advice}");
    }
    Ok(version)
}

/// Advice on a module that a handler imports and that is not installed, from the class and message of the exception.
#[must_use]
pub fn missing_module(class: &str, message: &str) -> Option<String> {
    if class != "ModuleNotFoundError" {
        return None;
    }
    let module = message.split('\'').nth(1)?;
    let package = module.split('.').next().unwrap_or(module);
    Some(format!(
        "Add the package that has the module {package} to requirements.txt, or to requirements in stoke.toml; if it is \
         your own file, put it into the folder."
    ))
}

/// The description of a program, which has no Python handler.
pub(crate) fn of_program() -> Value {
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    json!({"entry": "", "input_schema": {"$schema": dialect, "type": "object"}, "output_schema": {}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_comes_with_advice() {
        let advice = missing_module("ModuleNotFoundError", "No module named 'cv2.gapi'").expect("it is missing");
        assert!(advice.contains("module cv2 to requirements.txt"), "{advice}");
        assert_eq!(missing_module("ImportError", "cannot import name 'a'"), None);
        let described = br#"{"error": {"class": "ModuleNotFoundError", "message": "No module named 'numpy'"}}"#;
        let error = parse("main.py", described, b"", "exit status: 0").expect_err("it cannot be imported").to_string();
        assert!(error.starts_with("cannot import main.py: ModuleNotFoundError: No module"), "{error}");
        assert!(error.contains("\nAdd the package that has the module numpy"), "{error}");
    }
}
