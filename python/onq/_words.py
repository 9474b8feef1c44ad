"""Messages of libonq in Python's words: parameters and keys of extra_options instead of options of the command line."""

from __future__ import annotations

import re

# Options of the command line that are parameters by another name, or keys of extra_options. Others are parameters by
# the same name, or are named as options.
_PARAMETERS = {
    "calibration_cache": "calibration_cache_path",
    "calibration_method": "calibrate_method",
    "data": "calibration_data_reader",
    "extra": "extra_options",
    "input": "model_input",
    "node_config": "customized_weight_config",
    "output": "model_output",
    "provider": "calibration_providers",
}
KEYS = {
    "activation_restricted_asymmetric": "ActivationRestrictedAsymmetric",
    "activation_symmetric": "ActivationSymmetric",
    "add_qdq_pair_to_weight": "AddQDQPairToWeight",
    "block_size": "BlockSize",
    "calib_max_intermediate_outputs": "CalibMaxIntermediateOutputs",
    "calib_moving_average": "CalibMovingAverage",
    "calib_moving_average_constant": "CalibMovingAverageConstant",
    "calib_percentile": "CalibPercentile",
    "calib_strided_minmax": "CalibStridedMinMax",
    "calib_tensor_range_symmetric": "CalibTensorRangeSymmetric",
    "dedicated_qdq_pair": "DedicatedQDQPair",
    "enable_subgraph": "EnableSubgraph",
    "force_quantize_no_input_check": "ForceQuantizeNoInputCheck",
    "matmul_const_b_only": "MatMulConstBOnly",
    "minimum_real_range": "MinimumRealRange",
    "op_per_channel_axis": "QDQOpTypePerChannelSupportToAxis",
    "op_types_to_exclude_output_quantization": "OpTypesToExcludeOutputQuantization",
    "qdq_disable_weight_adjust_for_int32_bias": "QDQDisableWeightAdjustForInt32Bias",
    "qdq_keep_removable_activations": "QDQKeepRemovableActivations",
    "quantize_bias": "QuantizeBias",
    "smooth_quant": "SmoothQuant",
    "smooth_quant_alpha": "SmoothQuantAlpha",
    "smooth_quant_folding": "SmoothQuantFolding",
    "tensor_quant_overrides": "TensorQuantOverrides",
    "use_qdq_contrib_ops": "UseQDQContribOps",
    "weight_symmetric": "WeightSymmetric",
}
_COMMANDS = {"preprocess": "quant_pre_process", "debug": "onq.debug", "inspect": "onq.inspect", "auto": "onq.auto"}
_SAME = {
    "activation_type",
    "nodes_to_exclude",
    "nodes_to_include",
    "nodes_to_quantize",
    "op_types_to_quantize",
    "per_channel",
    "quant_axes",
    "quant_format",
    "ratios",
    "reduce_range",
    "use_external_data_format",
    "weight_type",
}

_EXTRA = re.compile(r"--extra ([A-Za-z][\w.]*)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_]*)(?![\w-])")
_COMMAND = re.compile(r"['`]onq (\w+)['`]")


def _option(name: str, command: str) -> str:
    if name in _SAME:
        return name
    if name == "block_size" and command != "static":  # a parameter of the weights of few bits
        return name
    if name in KEYS:
        return f"extra_options[{KEYS[name]!r}]"
    return _PARAMETERS.get(name, f"the option {name} of the command onq")


def in_python(text: str, command: str) -> str:
    """A message of the library for a caller in Python."""
    text = _EXTRA.sub(lambda m: f"extra_options[{m[1]!r}]", text)
    text = _OPTION.sub(lambda m: _option(m[1], command), text)
    return _COMMAND.sub(lambda m: _COMMANDS.get(m[1], m[0]), text)
