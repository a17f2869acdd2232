//! The README's guarantee table is what the code says. `UPDATE=1` writes it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{env, fs, path::Path};

const START: &str = "<!-- guarantees: written by `UPDATE=1 cargo test -p leasehold --test readme` -->\n";
const END: &str = "<!-- end of guarantees -->\n";

#[test]
fn the_guarantee_table_is_what_the_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = fs::read_to_string(&file).unwrap();
    let from = page.find(START).expect("the table's first mark") + START.len();
    let to = page.find(END).expect("the table's last mark");
    let table = format!("\n{}\n", leasehold::guarantees::table());
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, format!("{}{table}{}", &page[..from], &page[to..])).unwrap();
        return;
    }
    assert_eq!(&page[from..to], table, "UPDATE=1 writes it");
}
