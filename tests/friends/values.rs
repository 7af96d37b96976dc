//! Types, shapes and values of files, through JSON.

use ggml::gguf::Value;
use ggml::prelude::*;

#[test]
fn serde_takes_what_describes_a_tensor() {
    let described = [("w", DType::Q4_K, Shape::from([256, 3]))];
    let text = serde_json::to_string(&described).unwrap();
    assert_eq!(text, r#"[["w","q4_K",[256,3,1,1]]]"#);
    let read: Vec<(String, DType, Shape)> = serde_json::from_str(&text).unwrap();
    let mut builder = WeightsBuilder::new();
    for (name, dtype, shape) in read {
        builder.tensor(&name, dtype, shape).unwrap();
    }
    assert_eq!(builder.place(Device::cpu().unwrap()).unwrap().tensor("w").unwrap().nbytes(), 3 * 144);
    assert_eq!(serde_json::to_string(&Value::from(vec![1_u8])).unwrap(), r#"{"arr":{"u8":[1]}}"#);
}
