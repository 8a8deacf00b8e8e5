//! Members of a `config.json`. Some have other names in older models.

use serde_json::{Map, Value};

use crate::Error;

/// The members of a configuration.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// A value that is not null.
    pub(crate) fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn object(self, name: &str) -> Option<Fields<'a>> {
        self.get(name).and_then(Value::as_object).map(Fields)
    }

    pub(crate) fn text(self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn flag(self, name: &str, default: bool) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    pub(crate) fn texts(self, name: &str) -> Vec<&'a str> {
        let list = self.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// A whole number up to `max`, under the first of these names that is there.
    pub(crate) fn whole(self, names: &[&str], max: u64) -> Result<Option<u64>, Error> {
        let Some((name, value)) = names.iter().find_map(|name| Some((name, self.get(name)?))) else { return Ok(None) };
        match value.as_u64().filter(|number| *number <= max) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::invalid(format!("{name} is {value}; it must be a whole number from 0 to {max}"))),
        }
    }

    /// A whole number from 1 to `max`, which must be there.
    pub(crate) fn need(self, names: &[&str], max: u64) -> Result<u64, Error> {
        match self.whole(names, max)? {
            Some(0) => Err(Error::invalid(format!("{} is 0", names[0]))),
            Some(number) => Ok(number),
            None => Err(Error::invalid(format!("{} is missing", names[0]))),
        }
    }
}
