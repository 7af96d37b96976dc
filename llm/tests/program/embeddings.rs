//! `embed`.

use ggml_llm::Architecture;

use crate::{SMALL, model, run, text};

/// The same as those of the library, with length 1, for a text and for lines.
#[test]
fn embeddings_are_printed_as_lines_of_json() {
    use ggml_llm::{Batch, Model, ModelOptions, Session, SessionOptions};
    let file = model(Architecture::Qwen3);
    let lines = file.path.with_extension("txt");
    std::fs::write(&lines, "a text\n\nanother <|begin|>\n").unwrap();
    let list = |arguments: &[&str], input: &str| -> Vec<serde_json::Value> {
        let printed = text(&run("embed", &file.path, &[SMALL, arguments].concat(), input));
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = list(&["--lines", lines.to_str().unwrap()], "");
    assert_eq!((all.len(), &all[1]["index"], &all[1]["tokens"]), (2, &1.into(), &17.into()));
    assert_eq!(list(&["--special", "another <|begin|>"], "")[0]["tokens"], 9);
    assert_eq!(list(&["-"], "a text")[0], all[0]);
    let model = Model::load(&file.path, &ModelOptions::default()).unwrap();
    let options = SessionOptions::default().with_n_ctx(256_usize).with_threads(1_usize);
    let mut session = Session::new(model, &options).unwrap();
    let mut batch = Batch::new();
    batch.prompt(0, &b"a text".map(i32::from));
    session.embed(&batch).unwrap();
    let own = session.embedding(0).unwrap();
    let length = own.iter().map(|x| x * x).sum::<f32>().sqrt();
    let printed: Vec<f32> = serde_json::from_value(all[0]["embedding"].clone()).unwrap();
    assert!(printed.len() == own.len() && printed.iter().zip(own).all(|(a, b)| (a - b / length).abs() < 1e-5));
    for (arguments, why) in [(&["--lines", "none.txt"], "none.txt"), (&["--ctx", ""], "--ctx")] {
        let output = run("embed", &file.path, arguments, "");
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
    let long = run("embed", &file.path, &[SMALL, &["-"]].concat(), &"a".repeat(300));
    assert!(String::from_utf8_lossy(&long.stderr).contains("text 0 has 300 tokens, but 256 fit"), "{long:?}");
}
