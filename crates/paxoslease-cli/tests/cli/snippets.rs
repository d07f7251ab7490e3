//! The fenced blocks of a page, so that transcripts can play what the page prints.

/// Every block except diagrams and formulas (`text`), and its name: the nearest heading or bold
/// beginning of a paragraph above it, a number for the second and later ones, and its language.
pub(crate) fn snippets(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut title, mut count) = (String::new(), 0);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let bold = line.strip_prefix("**").and_then(|rest| rest.split_once("**"));
        if bold.is_some() || line.starts_with('#') {
            (title, count) = (slug(bold.map_or(line, |(label, _)| label)), 0);
        }
        let Some((indent, language)) = line.split_once("```") else { continue };
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block = block.map(|line| format!("{}\n", line.strip_prefix(indent).unwrap_or(line)));
        let block: String = block.collect();
        let extension = match language.split(',').next() {
            Some("text") => continue,
            Some("python") => "py",
            Some("js") => "mjs",
            Some("rust") => "rs",
            _ => language,
        };
        count += 1;
        let number = if count == 1 { String::new() } else { format!("-{count}") };
        found.push((format!("{title}{number}.{extension}"), block));
    }
    found
}

/// The words of the text in lower case, with hyphens between them.
fn slug(text: &str) -> String {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

#[test]
fn blocks_are_named_by_what_is_above_them() {
    let page = "# Page\n## One: a\n```sh\nx\n  y\n```\n```text\nz\n```\n\
                **Two**, b\n\n  ```python\n  c\n  ```\n```sql\nd\n```\n";
    let named = [("one-a.sh", "x\n  y\n"), ("two.py", "c\n"), ("two-2.sql", "d\n")];
    assert_eq!(snippets(page), named.map(|(name, text)| (name.to_owned(), text.to_owned())));
}
