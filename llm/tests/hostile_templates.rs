//! Chat templates of a stranger who wants the program to end, to run for ever, or to use all memory: each ends, soon, with a text
//! or an error.

#![cfg(test)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ggml_llm::text::{ChatTemplate, Message};

/// Make `x` large, deep or strange.
const MAKE: &[&str] = &[
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x='ab') %}{% for i in range(21) %}{% set n.x = n.x ~ n.x %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x={}) %}{% for i in range(90) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{% set x = n.x %}",
    "{% set n = namespace(x=1) %}{% set n.x = n %}{% set x = n %}",
    "{% set n = namespace(x=1) %}{% set m = namespace(y=[n]) %}{% set n.x = [m] %}{% set x = n %}",
    "{% set x = 'x' * 99999999999 %}",
    "{% set x = 'x' * 9999999 %}",
    "{% set x = [0] * 99999999999 %}",
    "{% set x = [[0] * 9999] * 9999 %}",
    "{% set x = range(99999) | list %}",
    "{% set x = range(99999999999999) %}",
    "{% set x = range(9223372036854775807, -9223372036854775807, -1) %}",
    "{% macro f(a) %}{{ f(a) }}{{ f(a) }}{% endmacro %}{% set x = f(1) %}",
    "{% macro f(a) %}{% if a %}{{ f(a - 1) }}{{ f(a - 1) }}{% else %}x{% endif %}{% endmacro %}{% set x = f(60) %}",
    "{% macro f(a=f) %}{{ a(a) }}{% endmacro %}{% set x = f %}",
    "{% set x = 'a' %}{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in [1] %}{% set x = loop %}{{ loop.changed(loop) }}{% endfor %}{% set x = messages %}",
    "{% set x = '%99999999999d%-99999999s%.99999999f' %}",
    "{% set x = '{:99999999999}{0.__class__.__mro__}{}' %}",
    "{% set x = 2 ** 62 * 2 ** 62 %}",
    "{% set x = 99 ** 99 ** 99 %}",
    "{% set x = 1e308 * 10 %}",
    "{% set x = [1e308 * 10 - 1e308 * 10, 1, 'a', none, [], {}] * 99 %}",
    "{% set x = messages[0].content * 9999 %}",
    "{% set x = dict(a=messages, b=messages) %}",
    "{% set x %}{% for i in range(99999) %}{{ messages[0].content }}{{ range(999) }}{% endfor %}{% endset %}",
    "{% filter upper | lower | title %}{% for i in range(99999) %}{{ messages }}{% endfor %}{% endfilter %}",
    "{% set x = (' a' * 99999).split() %}",
    "{% set x = ('\\n' * 999999).splitlines() %}",
    "{% set x = '\\U0010ffff' * 99999 %}",
    "{% set x = strftime_now('%Y' * 120) * 9999 %}",
    "{% set x = strftime_now('%999999999Y%099999999d') %}",
    "{% with x = [messages] * 9999 %}{% set y = x | tojson %}{{ y }}{% endwith %}{% set x = 'b' %}",
    "{% set x = undefined_one %}",
    "{% set x = (range(999) | map('string') | list) * 99 %}",
    "{% set x = {} %}{% for i in range(9999) %}{% set x = {i: x} %}{% endfor %}",
    "{% set n = namespace(x='') %}{% for i in range(99999) %}{% set n.x = n.x ~ i ~ ',' %}{% endfor %}{% set x = n.x %}",
];

/// Use it.
const USE: &[&str] = &[
    "{{ x }}",
    "{{ x | tojson }}{{ x | tojson(indent=9999999999) }}",
    "{{ x == x }}{{ [x, x] == [x, x] }}{{ x in x }}",
    "{{ x | replace('a', x) }}{{ x | replace('', x | string) }}",
    "{{ x | join(x) }}{{ x | join('-' * 99999) }}",
    "{{ x | indent(9999999999) }}{{ x | indent(99999, true, true) }}",
    "{{ x | batch(1) | list }}{{ x | batch(9999999999, 'x') | list }}",
    "{{ x | slice(9999999999) | list }}{{ x | slice(99999, 'x') | list }}",
    "{{ x | format(1, x, 2.5) }}{{ '%s%s' | format(x, x) }}",
    "{{ x | center(9999999999) }}{{ x | string | center(999999) }}",
    "{{ x.center(9999999999) }}{{ 'a'.ljust(9999999999) }}{{ 'a'.zfill(9999999999) }}",
    "{{ x | sort }}{{ x | sort(attribute='a.b.c') }}{{ x | unique | list }}",
    "{{ x | list | sort(reverse=true) | min }}{{ x | max }}{{ x | sum }}",
    "{{ x | map('upper') | list }}{{ x | map('map', 'map', 'map') | list }}{{ x | map('list') | list }}",
    "{{ x | select('in', x) | list }}{{ x | selectattr('a', 'in', x) | list }}",
    "{% for a in x %}{% for b in x %}{{ loop.index }}{% for c in x %}{{ c }}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in x if a in x %}{{ a ~ x }}{% endfor %}",
    "{{ x[::-1] }}{{ x[9223372036854775807:-9223372036854775807:-9223372036854775807] }}{{ x[-1] }}",
    "{{ x ~ x ~ x }}{{ x + x }}{{ x * 3 }}{{ x * x }}{{ -x }}",
    "{{ x.format(x, x, a=x) }}{{ x.split('a') }}{{ x.join(x) }}{{ x.count('') }}{{ x.strip(x) }}",
    "{{ x() }}",
    "{{ x.items() }}{{ x.x.x.y }}{{ x['x'] }}{{ x | items | list }}{{ x | dictsort }}",
    "{% set x.x = x %}{{ x }}{{ x | tojson }}",
    "{{ x | string | length }}{{ x | string | title | upper | trim | wordcount }}{{ x | e }}",
    "{% macro g(a) %}{{ a }}{{ g(a ~ a) }}{% endmacro %}{{ g(x) }}",
];

/// What is hard to parse.
fn deep() -> Vec<String> {
    let repeated = |before: &str, part: &str, after: &str| {
        let n = (65_000 - before.len() - after.len()) / part.len();
        format!("{before}{}{after}", part.repeat(n))
    };
    vec![
        repeated("{{ ", "(", "1 }}"),
        repeated("{{ ", "[", "1 }}"),
        repeated("{{ ", "{1:", "1 }}"),
        repeated("{{ ", "-", "1 }}"),
        repeated("{{ ", "not ", "1 }}"),
        repeated("{{ 1", "+1", " }}"),
        repeated("{{ 1", "**1", " }}"),
        repeated("{{ x", ".a", " }}"),
        repeated("{{ x", "[0]", " }}"),
        repeated("{{ x", "()", " }}"),
        repeated("{{ x", "|e", " }}"),
        repeated("{{ 1", " is eq 1", " }}"),
        repeated("{{ 1", " if 1 else 1", " }}"),
        repeated("{{ 1", " < 1", " }}"),
        repeated("{{ 1", " and 1", " }}"),
        repeated("", "{% if 1 %}", ""),
        repeated("", "{% for x in y %}", ""),
        repeated("", "{% macro m() %}", ""),
        repeated("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
        repeated("{% set ", "(", "a = 1 %}"),
        repeated("", "{% raw %}", ""),
        repeated("", "{#", ""),
        repeated("", "{{ '", ""),
        repeated("{{ '", "\\x41", "' }}"),
        repeated("{{ ", "9", " }}"),
        repeated("{% set a = 1", ", 1", " %}{{ a }}"),
        repeated("", "{% set a = 1 %}", "{{ a }}"),
        (0..4000).map(|i| format!("{{% set a{i} = 1 %}}")).collect::<Vec<_>>().concat()
            + "{% for i in range(99999) %}{{ z }}{% endfor %}",
        (0..4000).map(|i| format!("{{% macro a{i}() %}}{{% endmacro %}}")).collect::<Vec<_>>().concat(),
        "{{ '\\ud800' }}{{ '\\x' }}".into(),
        "\u{0}{{ \u{0} }}".into(),
    ]
}

/// The most memory that this process had, in KiB.
#[cfg(target_os = "linux")]
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_thousand_hostile_templates_end() {
    let both = MAKE.iter().flat_map(|make| USE.iter().map(move |end| format!("{make}{end}")));
    let all: Vec<String> = both.chain(deep()).collect();
    assert!(all.len() >= 1000, "{}", all.len());
    let next = AtomicUsize::new(0);
    let (texts, errors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let messages = [Message::new("user", "Hello, {{ world }}! ".repeat(50)), Message::new("assistant", "")];
        let mut longest = Duration::ZERO;
        while let Some(template) = all.get(next.fetch_add(1, Relaxed)) {
            let start = Instant::now();
            let count = match ChatTemplate::new(template, "<s>", "</s>").and_then(|t| t.render(&messages, true)) {
                Ok(_) => &texts,
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.len() < 4096 && !said.contains("panic"), "{template:.300}: {said}");
                    &errors
                }
            };
            count.fetch_add(1, Relaxed);
            let time = start.elapsed();
            // A bound that only what runs away exceeds, on a busy machine, without optimisation.
            assert!(time < Duration::from_secs(60), "{template:.300} took {time:?}");
            longest = longest.max(time);
        }
        longest
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let longest = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    let (texts, errors) = (texts.into_inner(), errors.into_inner());
    println!("{} templates: {texts} texts, {errors} errors, {longest:?} at most", all.len());
    assert!(texts > 50 && errors > 500 && texts + errors == all.len(), "{texts} texts and {errors} errors");
    #[cfg(target_os = "linux")]
    {
        let most = most_memory();
        println!("{} MiB at most", most >> 10);
        assert!(most < 512 << 10, "{most} KiB");
    }
}
