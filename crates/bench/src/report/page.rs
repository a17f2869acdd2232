//! Blocks of a page that are written by this program, between marks; everything else is somebody's prose.

use crate::task::{Failure, failed};

/// The page with one block replaced.
///
/// # Errors
/// When the page does not have its marks, each once and in order.
pub(super) fn replace(page: &str, name: &str, content: &str) -> Result<String, Failure> {
    let (open, close) = (format!("<!-- bench: {name} -->"), format!("<!-- end of bench: {name} -->"));
    let once = |mark: &str| page.matches(mark).count() == 1;
    let (Some(from), Some(to)) = (page.find(&open), page.find(&close)) else {
        return failed(format!("the page has no block {open} … {close}"));
    };
    let from = from + open.len();
    if !once(&open) || !once(&close) || from > to {
        return failed(format!("the page's block {open} … {close} must be there once, in this order"));
    }
    Ok(format!("{}\n\n{}\n\n{}", &page[..from], content.trim(), &page[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\n<!-- bench: x -->\nold\n<!-- end of bench: x -->\n\nprose\n";

    #[test]
    fn prose_around_a_block_stays() {
        let page = replace(PAGE, "x", "| new |\n").unwrap();
        assert_eq!(page, "# A\n\n<!-- bench: x -->\n\n| new |\n\n<!-- end of bench: x -->\n\nprose\n");
        // Again gives the same.
        assert_eq!(replace(&page, "x", "| new |").unwrap(), page);
    }

    #[test]
    fn a_page_without_its_marks_is_not_touched() {
        for page in
            ["", "<!-- bench: x -->", "<!-- end of bench: x --><!-- bench: x -->", &[PAGE, PAGE].concat()]
        {
            assert!(replace(page, "x", "new").is_err(), "{page}");
        }
        assert!(replace(PAGE, "y", "new").is_err());
    }
}
