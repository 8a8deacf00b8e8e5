//! The deploy request.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::archive::Archive;
use crate::describe::Description;
use crate::error::{Error, invalid};
use crate::package::{Package, parted};
use crate::weights::Pinned;

impl Package {
    /// The body of the deploy request.
    ///
    /// # Errors
    /// If the handler's description is not an object.
    pub fn request(
        &self,
        description: &Description,
        requirements_lock: &str,
        weights: &[Pinned],
        archive: &Archive,
        traffic_percent: u32,
    ) -> Result<Map<String, Value>, Error> {
        // Without requirements, any Python version works unless one is set.
        let is_any = requirements_lock.is_empty() && self.python.is_none();
        let mut body = self.version(description.version.clone())?;
        body.insert("package_sha256".to_owned(), json!(archive.sha256));
        body.insert("package_size_bytes".to_owned(), json!(archive.size_bytes));
        body.insert("requirements_lock".to_owned(), json!(requirements_lock));
        body.insert("python".to_owned(), json!(if is_any { "" } else { &description.python }));
        body.insert("weights".to_owned(), json!(weights));
        body.insert("traffic_percent".to_owned(), json!(traffic_percent));
        Ok(body)
    }

    /// The members of the deploy request that the folder and the handler's description determine.
    ///
    /// # Errors
    /// If the description is not an object.
    pub fn version(&self, described: Value) -> Result<Map<String, Value>, Error> {
        let Value::Object(mut described) = described else { invalid!("the handler's description is not an object") };
        let mut body = match described.remove("options") {
            Some(Value::Object(options)) => options,
            _ => Map::new(),
        };
        described.remove("kind");
        self.place(&mut described);
        let own_name = described.remove("name").filter(|name| !name.is_null());
        body.extend(described);
        // Requirements are merged member by member.
        let mut members = self.members.clone();
        if let (Some(Value::Object(theirs)), Some(Value::Object(ours))) =
            (body.get("demands"), members.get_mut("demands"))
        {
            for (name, value) in theirs {
                ours.entry(name.clone()).or_insert(value.clone());
            }
        }
        body.extend(members);
        let name = match (&self.name, own_name) {
            (Some(name), _) => json!(name),
            (None, Some(name)) => name,
            (None, None) => json!(name_of(&self.shown())),
        };
        body.insert("name".to_owned(), name);
        Ok(body)
    }

    /// Makes the handler's file relative to the folder. Python reports only the file name.
    fn place(&self, described: &mut Map<String, Value>) {
        let Some(Value::String(entry)) = described.get_mut("entry") else { return };
        let target = self.target.as_deref().map(|target| PathBuf::from(parted(target).0));
        let file = target.and_then(|file| std::fs::canonicalize(file).ok()).filter(|file| file.is_file());
        if let Some(inside) = file.and_then(|file| inside(&file, &self.folder())) {
            let object = entry.split_once(':').map(|(_, object)| format!(":{object}")).unwrap_or_default();
            *entry = format!("{inside}{object}");
        }
    }
}

fn inside(file: &Path, folder: &Path) -> Option<String> {
    Some(file.strip_prefix(folder).ok()?.to_string_lossy().into_owned())
}

/// Derives an endpoint name from the name of a folder or file.
#[must_use]
pub fn name_of(shown: &str) -> String {
    let stem = shown.strip_suffix(".py").unwrap_or(shown).to_ascii_lowercase();
    let parts: Vec<&str> = stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("-").chars().take(63).collect();
    if name.is_empty() { "endpoint".to_owned() } else { name.trim_end_matches('-').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_folders() {
        assert_eq!(name_of("My_Model v2"), "my-model-v2");
        assert_eq!(name_of("handler.py"), "handler");
        assert_eq!(name_of("__"), "endpoint");
    }
}
