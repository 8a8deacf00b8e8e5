//! Checks that the tests named in `docs/explanation/reliability/faults.md` exist.

use std::fs;

use crate::api::root;

#[test]
fn every_test_that_the_table_of_faults_names_is_there() {
    let table = fs::read_to_string(root().join("docs/explanation/reliability/faults.md")).unwrap();
    let (mut file, mut named) = ("", 0);
    // The code spans: `path::name`, or `::name` in the file named before it.
    for name in table.split('`').skip(1).step_by(2).filter(|code| *code != "path::name") {
        let Some((path, test)) = name.split_once("::") else { continue };
        if !path.is_empty() {
            file = path;
        }
        let source = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let defined = ["fn", "def"].iter().any(|word| source.contains(&format!("{word} {test}(")));
        assert!(defined, "there is no test {test} in {file}");
        named += 1;
    }
    assert!(named > 50, "the table is read: {named}");
}
