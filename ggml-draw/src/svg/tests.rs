//! Checks the drawing's contents, and that it is well-formed for any names.

use roxmltree::{Document, Node as Xml};

use super::*;

impl Drawing {
    /// Appends a node that uses `sources`.
    fn add(&mut self, kind: Kind, label: &str, device: usize, sources: &[usize]) -> usize {
        let split = (kind == Kind::Op).then_some(device);
        let (op, name) = match kind {
            Kind::Op | Kind::View => (label, ""),
            _ => ("", label),
        };
        self.nodes.push(Node {
            kind,
            op: op.into(),
            name: name.into(),
            shape: "f32 4x4x32x60".into(),
            device: Some(device),
            split,
        });
        let index = self.nodes.len() - 1;
        self.edges.extend(sources.iter().map(|&source| (source, index)));
        index
    }
}

/// Two convolution layers and a matrix on two devices, scheduled as in the demo.
fn sample() -> Drawing {
    let device = |name: &str, description: &str| Device { name: name.into(), description: description.into() };
    let mut drawing = Drawing {
        title: "sched_demo".into(),
        devices: vec![device("RPC0", "127.0.0.1:50052"), device("CPU", "a <fast> & \"small\" one")],
        ..Drawing::default()
    };
    let mut last = drawing.add(Kind::Input, "images", 1, &[]);
    for (d, name) in ["conv1", "conv2"].into_iter().enumerate() {
        let weight = drawing.add(Kind::Weight, &format!("{name}.weight"), d, &[]);
        let bias = drawing.add(Kind::Weight, &format!("{name}.bias"), d, &[]);
        let copy = drawing.add(Kind::Copy(15_360), "", d, &[last]);
        let columns = drawing.add(Kind::Op, "im2col", d, &[weight, copy]);
        let columns = drawing.add(Kind::View, "reshape", d, &[columns]);
        let kernel = drawing.add(Kind::View, "reshape", d, &[weight]);
        let product = drawing.add(Kind::Op, "mul_mat", d, &[columns, kernel]);
        let turned = drawing.add(Kind::View, "permute", d, &[product]);
        let whole = drawing.add(Kind::Op, "cont", d, &[turned]);
        let sum = drawing.add(Kind::Op, "add", d, &[whole, bias]);
        let relu = drawing.add(Kind::Op, "relu", d, &[sum]);
        last = drawing.add(Kind::Op, "pool_2d", d, &[relu]);
    }
    let weight = drawing.add(Kind::Weight, "fc1.weight", 0, &[]);
    let copy = drawing.add(Kind::Copy(122_880), "", 0, &[last]);
    let product = drawing.add(Kind::Op, "mul_mat", 0, &[weight, copy]);
    drawing.nodes[product].name = "logits".into();
    drawing
}

/// A random acyclic graph, possibly disconnected.
fn random(mut state: u32) -> Drawing {
    let mut below = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    let device = Device { name: "CPU".into(), description: String::new() };
    let mut drawing = Drawing { devices: vec![device], ..Drawing::default() };
    for n in 0..=below(40) {
        let sources: Vec<_> = (0..below(3)).filter(|_| n > 0).map(|_| n - 1 - below(n.clamp(1, 8))).collect();
        let kind = if below(4) == 0 && sources.len() == 1 { Kind::Copy(1000) } else { Kind::Op };
        drawing.add(kind, &"x".repeat(below(20)), 0, &sources);
    }
    drawing
}

fn attribute(node: Xml<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn of_class<'a, 'i>(document: &'a Document<'i>, classes: &[&str]) -> Vec<Xml<'a, 'i>> {
    let wanted = |n: &Xml<'_, '_>| n.attribute("class").is_some_and(|class| classes.contains(&class));
    document.descendants().filter(wanted).collect()
}

fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    document.descendants().filter(Xml::is_text).filter_map(|n| n.text()).collect()
}

fn rect<'a, 'i>(node: Xml<'a, 'i>) -> Xml<'a, 'i> {
    node.children().find(|child| child.has_tag_name("rect")).unwrap()
}

/// Left, top, right and bottom of each node and label, in drawing order.
fn frames(document: &Document<'_>) -> Vec<[f64; 4]> {
    let frame = |node| {
        let rect = rect(node);
        let (x, y) = (attribute(rect, "x"), attribute(rect, "y"));
        [x, y, x + attribute(rect, "width"), y + attribute(rect, "height")]
    };
    of_class(document, &["node", "copied"]).into_iter().map(frame).collect()
}

fn assert_apart(frames: &[[f64; 4]]) {
    for (i, a) in frames.iter().enumerate() {
        for b in &frames[..i] {
            let apart = a[0] > b[2] || b[0] > a[2] || a[1] > b[3] || b[1] > a[3];
            assert!(apart, "{a:?} and {b:?} overlap");
        }
    }
}

/// The start and end of a path.
fn ends(path: Xml<'_, '_>) -> ([f64; 2], [f64; 2]) {
    let numbers: Vec<f64> = path
        .attribute("d")
        .unwrap()
        .split(|c: char| !(c.is_ascii_digit() || "-.".contains(c)))
        .filter(|number| !number.is_empty())
        .map(|number| number.parse().unwrap())
        .collect();
    let n = numbers.len();
    ([numbers[0], numbers[1]], [numbers[n - 2], numbers[n - 1]])
}

/// Whether a point lies on a frame, within rounding of the printed numbers.
fn touches(frame: &[f64; 4], [x, y]: [f64; 2]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() < 0.3;
    let [left, top, right, bottom] = *frame;
    let inside = x > left - 0.3 && x < right + 0.3 && y > top - 0.3 && y < bottom + 0.3;
    inside && (near(x, left) || near(x, right) || near(y, top) || near(y, bottom))
}

#[test]
fn svg_draws_every_node_in_its_device_colour() {
    let drawing = sample();
    let svg = drawing.to_svg();
    let document = Document::parse(&svg).unwrap();
    let drawn = of_class(&document, &["node", "copied"]);
    assert_eq!(drawn.len(), drawing.nodes.len());
    for (drawn, node) in drawn.into_iter().zip(&drawing.nodes) {
        let text: Vec<_> = drawn.descendants().filter_map(|n| n.text()).collect();
        assert!(text.contains(&node.headline().as_str()), "{text:?} lacks {}", node.headline());
        let line = match node.kind {
            Kind::Copy(_) => "#c81e1e",
            _ => ["#b45309", "#1d4ed8"][node.device.unwrap()],
        };
        assert_eq!(rect(drawn).attribute("stroke"), Some(line), "{}", node.headline());
    }
    assert!(texts(&document).contains(&"f32 4x4x32x60 · logits"));
}

#[test]
fn svg_nodes_do_not_overlap() {
    let svg = sample().to_svg();
    let document = Document::parse(&svg).unwrap();
    let frames = frames(&document);
    assert_apart(&frames);
    let upmost = frames.iter().map(|f| f[1]).fold(f64::INFINITY, f64::min);
    assert!(upmost.abs() < 0.1, "the drawing starts at {upmost}");
    let group = document.descendants().find(|n| n.has_attribute("transform")).unwrap();
    let shift = group.attribute("transform").unwrap();
    let shift = shift.trim_start_matches("translate(").trim_end_matches(')');
    let (left, top) = shift.split_once(' ').unwrap();
    let (left, top): (f64, f64) = (left.parse().unwrap(), top.parse().unwrap());
    let page = document.root_element();
    let (width, height) = (attribute(page, "width"), attribute(page, "height"));
    assert!(frames.iter().all(|f| f[0] + left > 0.0 && f[1] + top > 0.0), "beyond the upper left");
    assert!(frames.iter().all(|f| f[2] + left < width && f[3] + top < height), "beyond the lower right");
}

#[test]
fn svg_edges_lead_down_and_copies_are_dashed() {
    let drawing = sample();
    let svg = drawing.to_svg();
    let document = Document::parse(&svg).unwrap();
    let frames = frames(&document);
    let paths = of_class(&document, &["edge", "copy"]);
    assert_eq!(paths.len(), drawing.edges.len());
    for (&(from, to), path) in drawing.edges.iter().zip(paths) {
        let (start, end) = ends(path);
        assert!(touches(&frames[from], start), "{from} -> {to} starts at {start:?}");
        assert!(touches(&frames[to], end), "{from} -> {to} ends at {end:?}");
        assert!(start[1] < end[1], "{from} -> {to} leads upwards");
        let copies = drawing.nodes[from].is_copy() || drawing.nodes[to].is_copy();
        assert_eq!(path.has_attribute("stroke-dasharray"), copies, "{from} -> {to}");
        assert_eq!(path.has_attribute("marker-end"), !drawing.nodes[to].is_copy(), "{from} -> {to}");
    }
}

#[test]
fn svg_legend_counts_nodes() {
    let svg = sample().to_svg();
    let document = Document::parse(&svg).unwrap();
    let texts = texts(&document);
    for line in [
        "RPC0 · 7 operations · 127.0.0.1:50052",
        "CPU · 6 operations · a <fast> & \"small\" one",
        "copied to another device · 3 tensors · 150.00 KiB",
    ] {
        assert!(texts.contains(&line), "`{line}` is not in {texts:?}");
    }
    let mut alone = sample();
    for node in &mut alone.nodes {
        node.kind = Kind::Op;
    }
    assert!(!alone.to_svg().contains("copied to another device"));
}

#[test]
fn svg_escapes_any_name() {
    let mut drawing = sample();
    let hostile = "<&\"'>]]>\u{0}\u{1b}\u{ffff}\n\u{85}é🦀";
    drawing.title = hostile.into();
    drawing.devices[0].name = hostile.into();
    drawing.nodes[0].name = hostile.into();
    drawing.nodes[4].op = hostile.into();
    drawing.nodes[4].shape = hostile.into();
    let svg = drawing.to_svg();
    let document = Document::parse(&svg).unwrap();
    let expected = "<&\"'>]]>\u{fffd}\u{fffd}\u{fffd} \u{fffd}é🦀";
    let found = texts(&document).into_iter().filter(|text| text.contains(expected)).count();
    // The title twice, the legend, two headlines, a shape, and the tooltips of all nodes on that device.
    assert!(found >= 7, "{found} in {svg}");
}

#[test]
fn svg_draws_the_main_path_straight() {
    let drawing = sample();
    let svg = drawing.to_svg();
    let document = Document::parse(&svg).unwrap();
    let frames = frames(&document);
    let centre = |i: usize| f64::midpoint(frames[i][0], frames[i][2]);
    for (i, node) in drawing.nodes.iter().enumerate().skip(1) {
        let on_the_way = matches!(node.kind, Kind::Op | Kind::Copy(_));
        assert!(!on_the_way || (centre(i) - centre(0)).abs() < 1.0, "{} is at {}", node.op, centre(i));
        assert!(node.kind != Kind::Weight || (centre(i) - centre(0)).abs() > 60.0, "{}", node.name);
    }
}

#[test]
fn svg_has_a_column_for_each_split() {
    let mut drawing = sample();
    let last = drawing.nodes.len() - 1;
    drawing.nodes[last].split = Some(2);
    let svg = drawing.to_svg();
    let document = Document::parse(&svg).unwrap();
    let frames = frames(&document);
    assert_apart(&frames);
    let columns = columns::of_nodes(&drawing.nodes, &drawing.edges);
    assert_eq!(
        (columns[0], columns[last - 2], columns[last - 1], columns[last]),
        (0, 2, 2, 2),
        "leaves and copies follow"
    );
    let mut across = 0;
    for (&(from, to), path) in drawing.edges.iter().zip(of_class(&document, &["edge", "copy"])) {
        let (start, end) = ends(path);
        assert!(touches(&frames[from], start) && touches(&frames[to], end), "{from} -> {to}");
        let next = columns[from] != columns[to];
        across += usize::from(next);
        assert!(if next { frames[from][2] < frames[to][0] } else { start[1] < end[1] }, "{from} -> {to}");
    }
    assert_eq!(across, 2, "the copies lead to the next column");
    let page = document.root_element();
    assert!(attribute(page, "width") > attribute(page, "height"), "wider than tall");
}

#[test]
fn svg_draws_any_graph() {
    Document::parse(&Drawing::default().to_svg()).unwrap();
    for seed in 0..300 {
        let drawing = random(seed);
        let svg = drawing.to_svg();
        let document = Document::parse(&svg).unwrap();
        let frames = frames(&document);
        assert_eq!(frames.len(), drawing.nodes.len(), "seed {seed}");
        assert_apart(&frames);
        for (&(from, to), path) in drawing.edges.iter().zip(of_class(&document, &["edge", "copy"])) {
            let (start, end) = ends(path);
            assert!(touches(&frames[from], start) && touches(&frames[to], end), "seed {seed}: {from} -> {to}");
            assert!(start[1] < end[1], "seed {seed}: {from} -> {to} leads upwards");
        }
    }
}

/// As dense as graphs can be: each node uses ten of the nodes before it.
fn dense(nodes: usize) -> Drawing {
    let mut drawing = random(1);
    (drawing.nodes, drawing.edges) = Default::default();
    for n in 0..nodes {
        let sources: Vec<_> =
            (0..n.min(10)).map(|i| if i == 0 { n - 1 } else { (n * 7919 + i * 104_729) % n }).collect();
        drawing.add(Kind::Op, "add", 0, &sources);
    }
    drawing
}

/// Layout takes a fixed number of passes over nodes, lines and bends, and the number of bends is limited.
#[test]
fn svg_layout_takes_linear_time() {
    for nodes in [400, 1000] {
        let drawing = dense(nodes);
        let layers = layers::Layers::new(nodes, &drawing.edges);
        assert_eq!(layers.rows.len(), nodes, "a chain goes through all");
        assert!(layers.items.len() <= nodes * (1 + layers::BENDS), "{} items", layers.items.len());
        let joined: usize = layers.items.iter().map(|item| item.below.len()).sum();
        assert!(joined <= drawing.edges.len() + layers.items.len(), "{joined} steps of lines");
        let svg = drawing.to_svg();
        let document = Document::parse(&svg).unwrap();
        assert_eq!(of_class(&document, &["edge"]).len(), drawing.edges.len());
        let frames = frames(&document);
        assert!(frames.windows(2).all(|f| f[0][3] < f[1][1]), "each node lies below its source");
        assert!(svg.len() < 600 * (nodes + drawing.edges.len()), "{} bytes", svg.len());
    }
}

#[test]
fn svg_sizes_have_units() {
    for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (15_360, "15.00 KiB"), (3 << 29, "1.50 GiB")] {
        assert_eq!(with_unit(bytes), text);
    }
    assert!(with_unit(usize::MAX).ends_with(" EiB"), "{}", with_unit(usize::MAX));
}
