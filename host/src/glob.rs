//! Shell patterns over the parts of a path: `*`, `?`, `[…]`, `{a,b}` within a part, `**` for any number of parts.

/// A pattern, cut at its slashes and with its braces spelled out.
pub struct Pattern {
    alternatives: Vec<Vec<Vec<u8>>>,
    plain: bool,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        let plain = !text.contains(&['*', '?', '[', '{'][..]);
        let spelled = if plain {
            vec![text.to_string()]
        } else {
            spell_out(text)
        };
        let cut = |text: &String| -> Vec<Vec<u8>> {
            text.split('/')
                .filter(|part| !part.is_empty() && *part != ".")
                .map(|part| part.as_bytes().to_vec())
                .collect()
        };
        Pattern {
            alternatives: spelled.iter().map(cut).collect(),
            plain,
        }
    }

    /// The pattern as the parts of a path, where it is one.
    pub fn literal(&self) -> Option<&[Vec<u8>]> {
        if self.plain {
            self.alternatives.first().map(Vec::as_slice)
        } else {
            None
        }
    }

    pub fn matches(&self, parts: &[Vec<u8>]) -> bool {
        self.alternatives
            .iter()
            .any(|pattern| matches_parts(pattern, parts))
    }
}

fn matches_parts(pattern: &[Vec<u8>], parts: &[Vec<u8>]) -> bool {
    match (pattern.split_first(), parts.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == b"**" => {
            matches_parts(rest, parts)
                || parts
                    .split_first()
                    .map_or(false, |(_, after)| matches_parts(pattern, after))
        }
        (Some((first, rest)), Some((part, after))) => {
            matches_part(first, part) && matches_parts(rest, after)
        }
        _ => false,
    }
}

fn matches_part(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|taken| matches_part(rest, &name[taken..])),
        Some((b'?', rest)) => !name.is_empty() && matches_part(rest, &name[1..]),
        Some((b'[', rest)) => match (
            rest.iter().skip(1).position(|&byte| byte == b']'),
            name.split_first(),
        ) {
            (Some(end), Some((&byte, after))) => {
                in_class(&rest[..end + 1], byte) && matches_part(&rest[end + 2..], after)
            }
            (None, Some((b'[', after))) => matches_part(rest, after),
            _ => false,
        },
        Some((b'\\', rest)) if !rest.is_empty() => {
            name.first() == rest.first() && matches_part(&rest[1..], &name[1..])
        }
        Some((byte, rest)) => name.first() == Some(byte) && matches_part(rest, &name[1..]),
    }
}

fn in_class(class: &[u8], byte: u8) -> bool {
    let (negated, class) = match class.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, class),
    };
    let mut at = 0;
    let mut found = false;
    while at < class.len() {
        if at + 2 < class.len() && class[at + 1] == b'-' {
            found |= (class[at]..=class[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= class[at] == byte;
            at += 1;
        }
    }
    found != negated
}

fn spell_out(text: &str) -> Vec<String> {
    let open = match text.find('{') {
        Some(at) => at,
        None => return vec![text.to_string()],
    };
    let mut depth = 0;
    let mut commas = vec![open];
    for (at, character) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match character {
            '{' => depth += 1,
            ',' if depth == 1 => commas.push(at),
            '}' => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            if commas.len() == 1 {
                return vec![text.to_string()];
            }
            commas.push(at);
            let (before, after) = (&text[..open], &text[at + 1..]);
            return commas
                .windows(2)
                .flat_map(|pair| {
                    spell_out(&format!("{before}{}{after}", &text[pair[0] + 1..pair[1]]))
                })
                .collect();
        }
    }
    vec![text.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let parts: Vec<Vec<u8>> = path
            .split('/')
            .map(|part| part.as_bytes().to_vec())
            .collect();
        Pattern::new(pattern).matches(&parts)
    }

    #[test]
    fn matches_as_a_shell_does() {
        for (pattern, path) in [
            ("*.txt", "a.txt"),
            ("./src/*.ts", "src/x.ts"),
            ("**/x", "x"),
            ("**/x", "a/b/x"),
            ("a/**", "a/b/c"),
            ("file[0-9].log", "file7.log"),
            ("file[!0-9]", "filex"),
            ("{a,b}/c", "b/c"),
            ("?", "é".get(0..0).map_or("x", |_| "x")),
            ("x[", "x["),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.txt", "a/b.txt"),
            ("*.txt", "a.txtx"),
            ("file[0-9]", "filex"),
            ("{a,b}", "c"),
            ("?", "ab"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn knows_a_plain_path() {
        assert_eq!(Pattern::new("./a//b/").literal().map(<[_]>::len), Some(2));
        assert!(Pattern::new("a*").literal().is_none());
    }
}
