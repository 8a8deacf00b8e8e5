//! Computes one page of the keys of a bucket from prefix, delimiter and start. Pure.
//!
//! Keys are visited in the order of their bytes. Keys that the delimiter folds into one common prefix are skipped in
//! one seek, so the cost of a page depends on the entries that it shows.

use std::collections::BTreeMap;
use std::ops::Bound;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::format::Entry;

/// The parameters of a listing.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) prefix: String,
    /// The delimiter; `None` or not empty.
    pub(super) delimiter: Option<String>,
    pub(super) start: Start,
    pub(super) max: usize,
}

/// The start of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// The first key.
    Beginning,
    /// After this key.
    After(String),
    /// After all keys with this prefix.
    Beyond(String),
}

impl Start {
    /// The continuation token, which S3 clients return unchanged.
    pub(super) fn to_token(&self) -> String {
        let text = match self {
            Self::Beginning => String::new(),
            Self::After(key) => format!("k{key}"),
            Self::Beyond(prefix) => format!("p{prefix}"),
        };
        URL_SAFE_NO_PAD.encode(text)
    }

    pub(super) fn from_token(token: &str) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        match (text.strip_prefix('k'), text.strip_prefix('p')) {
            (Some(key), _) => Some(Self::After(key.to_owned())),
            (_, Some(prefix)) => Some(Self::Beyond(prefix.to_owned())),
            _ => None,
        }
    }
}

/// One page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) objects: Vec<(String, Entry)>,
    pub(super) common_prefixes: Vec<String>,
    /// The start of the next page; `None` on the last.
    pub(super) next: Option<Start>,
}

/// Computes the page for a query.
pub(super) fn page(objects: &BTreeMap<String, Entry>, query: &Query) -> Page {
    let mut page = Page::default();
    let mut last = query.start.clone();
    if query.max == 0 {
        return page;
    }
    let Some(mut from) = first_bound(query) else { return page };
    let mut shown = 0;
    loop {
        let next = objects.range::<String, _>((from.as_ref(), Bound::Unbounded)).next();
        let Some((key, entry)) = next.filter(|(key, _)| key.starts_with(&query.prefix)) else { return page };
        if shown == query.max {
            page.next = Some(last);
            return page;
        }
        shown += 1;
        if let Some(common) = common_prefix(key, query) {
            let beyond = successor(common).map(Bound::Included);
            last = Start::Beyond(common.to_owned());
            page.common_prefixes.push(common.to_owned());
            let Some(beyond) = beyond else { return page };
            from = beyond;
        } else {
            last = Start::After(key.clone());
            from = Bound::Excluded(key.clone());
            page.objects.push((key.clone(), entry.clone()));
        }
    }
}

/// The later one of the start of the prefix and the start of the page; `None` if no keys follow.
fn first_bound(query: &Query) -> Option<Bound<String>> {
    let prefix = query.prefix.clone();
    match &query.start {
        Start::After(key) if *key >= prefix => {
            // The key is inside a folder that the delimiter folds. The folder is not finished: S3 shows it again only
            // if the caller named the key itself (start-after). Tokens never point inside a folded folder.
            Some(Bound::Excluded(key.clone()))
        }
        Start::Beyond(common) if *common >= prefix => successor(common).map(Bound::Included),
        _ => Some(Bound::Included(prefix)),
    }
}

/// The common prefix into which the delimiter folds this key: everything up to and including the first delimiter after
/// the prefix.
fn common_prefix<'k>(key: &'k str, query: &Query) -> Option<&'k str> {
    let delimiter = query.delimiter.as_deref()?;
    let at = key.get(query.prefix.len()..)?.find(delimiter)?;
    key.get(..query.prefix.len() + at + delimiter.len())
}

/// The first text after all texts that start with `prefix`: its last character incremented, or if that is impossible,
/// the one before. `None` if there is no such text. The order of UTF-8 bytes is that of characters.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn bucket<'k>(keys: impl IntoIterator<Item = &'k str>) -> BTreeMap<String, Entry> {
        let entry = Entry { size_bytes: 1, etag: "e".to_owned(), modified_ms: 1 };
        keys.into_iter().map(|key| (key.to_owned(), entry.clone())).collect()
    }

    /// All pages in sequence, through tokens.
    fn walk(objects: &BTreeMap<String, Entry>, mut query: Query) -> (Vec<String>, Vec<String>) {
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        loop {
            let page = page(objects, &query);
            assert!(page.objects.len() + page.common_prefixes.len() <= query.max, "a page over its bound");
            keys.extend(page.objects.into_iter().map(|(key, _)| key));
            prefixes.extend(page.common_prefixes);
            let Some(next) = page.next else { return (keys, prefixes) };
            let token = next.to_token();
            query.start = Start::from_token(&token).expect("our own token");
        }
    }

    #[test]
    fn folders_fold_and_pages_join() {
        let objects = bucket(["a", "a/b", "a/c", "b/x/y", "b/z", "c"]);
        let query = Query { prefix: String::new(), delimiter: Some("/".to_owned()), start: Start::Beginning, max: 2 };
        let (keys, prefixes) = walk(&objects, query);
        assert_eq!(keys, ["a", "c"]);
        assert_eq!(prefixes, ["a/", "b/"]);
    }

    #[test]
    fn random_listings_agree_with_the_obvious_way() {
        let seed = rand::random();
        let mut rng = StdRng::seed_from_u64(seed);
        let letters = ['a', 'b', '/', 'é', char::MAX];
        for round in 0..2000 {
            let mut text = |most: usize| -> String {
                let length = rng.random_range(0..=most);
                (0..length).map(|_| letters[rng.random_range(0..letters.len())]).collect()
            };
            let keys: Vec<String> = (0..12).map(|_| text(6)).filter(|key| !key.is_empty()).collect();
            let objects = bucket(keys.iter().map(String::as_str));
            let (prefix, delimiter, after) = (text(2), text(1), text(3));
            let delimiter = (!delimiter.is_empty()).then_some(delimiter);
            let max = rng.random_range(1..4);
            let query =
                Query { prefix: prefix.clone(), delimiter: delimiter.clone(), start: Start::After(after.clone()), max };

            let (mut plain, mut folded) = (Vec::new(), BTreeSet::new());
            for key in objects.keys().filter(|key| key.starts_with(&prefix) && **key > after) {
                match common_prefix(key, &query) {
                    Some(common) => drop(folded.insert(common.to_owned())),
                    None => plain.push(key.clone()),
                }
            }
            let expected = (plain, folded.into_iter().collect());
            assert_eq!(walk(&objects, query.clone()), expected, "seed {seed} round {round}: {query:?} over {keys:?}");
        }
    }

    #[test]
    fn the_successor_steps_over_surrogates_and_the_last_character() {
        assert_eq!(successor("a/").as_deref(), Some("a0"));
        assert_eq!(successor("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(successor("\u{10FFFF}"), None);
        assert_eq!(successor(""), None);
    }

    #[test]
    fn a_foreign_token_is_none() {
        for token in ["", "!", "eA"] {
            assert_eq!(Start::from_token(token), None, "{token:?}");
        }
    }
}
