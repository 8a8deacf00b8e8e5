//! A whole list, page by page, or none.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answer::CallError;
use super::call::{Call, Calls, Resource, Verb};

/// Maximum number of pages: with the default page, 20,000 objects.
const PAGES_MAX: usize = 100;

/// Maximum number of restarts of a list that expires while it is read.
const STARTS_MAX: usize = 3;

/// A page of a list. A response without items is an error, not an empty list.
#[derive(Deserialize)]
struct Page<T> {
    kind: String,
    metadata: PageMeta,
    items: Vec<T>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

impl Calls {
    /// Lists all objects of a kind with these labels.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        resource: Resource,
        selector: &str,
    ) -> Result<Vec<T>, CallError> {
        for _ in 0..STARTS_MAX {
            match self.pages(resource, selector).await {
                Err(CallError::Expired) => {}
                other => return other,
            }
        }
        Err(CallError::Expired)
    }

    async fn pages<T: DeserializeOwned>(&self, resource: Resource, selector: &str) -> Result<Vec<T>, CallError> {
        let (mut items, mut next) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let mut call = Call::new(Verb::List, resource).with("labelSelector", selector);
            call = call.with("limit", self.settings().page.to_string());
            if !next.is_empty() {
                call = call.with("continue", next);
            }
            let page: Page<T> = self.call(&call).await?;
            if !page.kind.ends_with("List") {
                return Err(CallError::Silent(format!("expected a list, got a {}", page.kind)));
            }
            items.extend(page.items);
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(items);
            }
        }
        Err(CallError::Silent(format!("a list has more than {PAGES_MAX} pages")))
    }
}
