//! Pickles that hold tensors, and pickles that hold more.

use super::*;

/// `{name: tensor of `shape` with `strides` over ten elements}`, as PyTorch pickles it.
fn tensor(name: &str, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.push(b'X');
        out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        out.extend(text.as_bytes());
    };
    let sizes = |out: &mut Vec<u8>, sizes: &[u8]| {
        out.push(b'(');
        sizes.iter().for_each(|&size| out.extend([b'K', size]));
        out.push(b't');
    };
    let mut out = b"\x80\x02}".to_vec();
    text(&mut out, name);
    out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    text(&mut out, "storage");
    out.extend(b"ctorch\nFloatStorage\n");
    text(&mut out, "0");
    text(&mut out, "cpu");
    out.extend(b"K\x0atQK\x01");
    sizes(&mut out, shape);
    sizes(&mut out, strides);
    out.extend(b"\x89ccollections\nOrderedDict\n)RtRs.");
    out
}

fn fault(bytes: &[u8]) -> String {
    let fault = state_dict(bytes).unwrap_err();
    format!("{}: {} / {}", fault.at, fault.expected, fault.found)
}

#[test]
fn a_tensor_is_a_view_of_its_storage() {
    let bytes = tensor("w", &[3, 2], &[1, 3]);
    let (dict, end) = state_dict(&bytes).unwrap();
    assert_eq!(end, bytes.len());
    let storage = &dict.storages[0];
    assert_eq!((storage.key.as_str(), storage.dtype, storage.count), ("0", Dtype::F32, 10));
    let (name, view) = &dict.tensors[0];
    assert_eq!((name.as_str(), view.storage, view.offset), ("w", 0, 1));
    assert_eq!((view.shape.as_slice(), view.strides.as_slice()), (&[3, 2][..], &[1, 3][..]));
}

#[test]
fn a_name_that_runs_code_is_an_error_and_is_not_called() {
    // os.system('true'), builtins.eval('1'), and one that hides inside torch.
    for (module, name) in [("os", "system"), ("builtins", "eval"), ("posix", "system"), ("torch", "load")] {
        let bytes = format!("\u{2}c{module}\n{name}\n(X\u{4}\0\0\0truetR.");
        let bytes = [&[0x80], bytes.as_bytes()].concat();
        let expected = format!("2: a name that tensors need / `{module}.{name}`, which is not called");
        assert_eq!(fault(&bytes), expected);
    }
}

#[test]
fn instructions_that_make_objects_are_errors() {
    // NEWOBJ, INST, OBJ, STACK_GLOBAL, EXT1, BYTEARRAY8 and BUILD of a value that is no dictionary.
    for code in [0x81, b'i', b'o', 0x93, 0x82, 0x96] {
        assert!(fault(&[0x80, 2, code]).contains("an instruction that tensors need"), "{code:#x}");
    }
    assert!(fault(b"\x80\x02K\x01}b.").contains("a dictionary / 1"));
}

#[test]
fn a_tensor_must_lie_inside_its_storage() {
    assert!(state_dict(&tensor("w", &[9], &[1])).is_ok());
    assert!(fault(&tensor("w", &[10], &[1])).contains("a tensor inside a storage of 10 elements"));
    assert!(fault(&tensor("w", &[3, 2], &[1, 9])).contains("inside a storage"));
    // Strides of 0 would make much from little.
    assert!(fault(&tensor("w", &[255, 255], &[0, 0])).contains("inside a storage"));
    assert!(fault(&tensor("w", &[2], &[1, 1])).contains("inside a storage"));
    assert!(fault(&tensor("w", &[1; 17], &[1; 17])).contains("at most 16 dimensions"));
}

#[test]
fn a_damaged_pickle_is_an_error_wherever_it_ends() {
    let whole = tensor("w", &[3, 2], &[1, 3]);
    for length in 0..whole.len() {
        assert!(state_dict(&whole[..length]).is_err(), "{length}");
    }
    // No changed byte makes the reader panic.
    for at in 0..whole.len() {
        for value in 0..=255 {
            let mut changed = whole.clone();
            changed[at] = value;
            let _ = state_dict(&changed);
        }
    }
}

#[test]
fn nesting_without_end_costs_no_stack() {
    let deep = [b"\x80\x02N".as_slice(), &vec![0x85; 1_000_000], b"."].concat();
    assert!(fault(&deep).contains("a dictionary of tensors / a tuple"));
}

#[test]
fn a_trainers_file_has_its_model_under_a_name() {
    let one = tensor("w", &[3, 2], &[1, 3]);
    // The tensors without the protocol and the end.
    let inner = &one[2..one.len() - 1];
    for name in ["model", "model_dict"] {
        let mut bytes = b"\x80\x02}(X".to_vec();
        bytes.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(inner);
        // An optimizer's state, an epoch, and the encoder's options.
        bytes.extend(b"X\x05\0\0\0state}K\x00Ns");
        bytes.extend(b"X\x05\0\0\0epochK\x03");
        bytes.extend(b"X\x07\0\0\0encoder}X\x04\0\0\0case\x88su.");
        let (dict, end) = state_dict(&bytes).unwrap();
        assert_eq!((dict.tensors.len(), dict.tensors[0].0.as_str(), end), (1, "w", bytes.len()));
    }
}

#[test]
fn values_that_are_not_tensors_are_named() {
    assert!(fault(b"\x80\x02}X\x05\0\0\0epochK\x03s.").contains("a tensor as `epoch` / 3"));
    assert!(fault(b"\x80\x02]X\x01\0\0\0aa.").contains("a dictionary of tensors / a list"));
    let list = b"\x80\x02](X\x01\0\0\0aX\x01\0\0\0be.";
    assert_eq!(texts(list).unwrap(), (vec!["a".into(), "b".into()], list.len()));
}
