//! The page for people.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::Cell;

#[test]
fn the_page_loads_nothing_and_runs_no_text_of_users() {
    let cell = Cell::one();
    let daemon = &cell[0];
    let wish = json!({"ttl": "60s", "holder": "<script>alert('{{node}}')</script>"});
    assert_eq!(daemon.post("/v1/leases/%3Cb%3E%22x%22/acquire", &wish).status, 200);
    let page = daemon.get("/?prefix=%3Cb%3E%22");
    assert!(page.text.contains("&lt;script&gt;alert(&#39;{{node}}&#39;)&lt;/script&gt;"));
    assert!(page.text.contains("&lt;b&gt;&quot;x&quot;"));
    assert!(page.text.contains("value=\"&lt;b&gt;&quot;\""));
    assert!(!page.text.contains("<script>alert") && !page.text.contains("<b>\"x"));
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.text.contains(outside), "{outside}");
    }
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for tag in ["script", "style"] {
        let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
        assert_eq!(page.text.matches(&format!("<{tag}")).count(), 1, "{tag}");
        let (_, rest) = page.text.split_once(&begin).expect("there is one");
        let (inner, _) = rest.split_once(&end).expect("it ends");
        let hash = BASE64_STANDARD.encode(Sha256::digest(inner));
        assert!(policy.contains(&format!("{tag}-src 'sha256-{hash}'")), "{tag} in {policy}");
    }
    assert!(
        !page.text.contains(" style=") && !page.text.contains(" onload"),
        "all styles and scripts are in those two"
    );
}
