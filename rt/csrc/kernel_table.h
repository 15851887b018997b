OP("add", rt_run_binary, &rt_add, "TT:T", RT_ALL, "")
OP("subtract", rt_run_binary, &rt_subtract, "TT:T", RT_NUMBERS, "")
OP("multiply", rt_run_binary, &rt_multiply, "TT:T", RT_ALL, "")
OP("divide", rt_run_binary, &rt_divide, "TT:T", RT_NUMBERS, "")
OP("maximum", rt_run_binary, &rt_maximum, "TT:T", RT_ALL, "")
OP("minimum", rt_run_binary, &rt_minimum, "TT:T", RT_ALL, "")
OP("power", rt_run_binary, &rt_power, "TT:T", RT_NUMBERS, "")
OP("equal", rt_run_binary, &rt_equal, "TT:b", RT_ALL, "")
OP("less", rt_run_binary, &rt_less, "TT:b", RT_ALL, "")
OP("less_equal", rt_run_binary, &rt_less_equal, "TT:b", RT_ALL, "")
OP("greater", rt_run_binary, &rt_greater, "TT:b", RT_ALL, "")
OP("greater_equal", rt_run_binary, &rt_greater_equal, "TT:b", RT_ALL, "")
OP("logical_and", rt_run_binary, &rt_logical_and, "bb:b", RT_BOOLS, "")
OP("logical_or", rt_run_binary, &rt_logical_or, "bb:b", RT_BOOLS, "")
OP("logical_not", rt_run_unary, &rt_logical_not, "b:b", RT_BOOLS, "")
OP("negative", rt_run_unary, &rt_negative, "T:T", RT_SIGNED | RT_FLOATS, "")
OP("abs", rt_run_unary, &rt_absolute, "T:T", RT_NUMBERS, "")
OP("exp", rt_run_unary, &rt_exp, "T:T", RT_FLOATS, "")
OP("log", rt_run_unary, &rt_log, "T:T", RT_FLOATS, "")
OP("sqrt", rt_run_unary, &rt_sqrt, "T:T", RT_FLOATS, "")
OP("tanh", rt_run_unary, &rt_tanh, "T:T", RT_FLOATS, "")
OP("sigmoid", rt_run_unary, &rt_sigmoid, "T:T", RT_FLOATS, "")
OP("erf", rt_run_unary, &rt_erf, "T:T", RT_FLOATS, "")
OP("clip", rt_run_clip, NULL, "T:T", RT_FLOATS, "min:float? max:float?")
OP("cast", rt_run_cast, NULL, "T:@", RT_ALL, "dtype:dtype")
OP("bitcast", rt_run_bitcast, NULL, "T:@", RT_ANY, "dtype:dtype")
OP("where", rt_run_where, NULL, "bTT:T", RT_ANY, "")
OP("floor", rt_run_unary, &rt_floor, "T:T", RT_FLOATS, "")
OP("ceil", rt_run_unary, &rt_ceil, "T:T", RT_FLOATS, "")
OP("round", rt_run_unary, &rt_rint, "T:T", RT_FLOATS, "")
OP("reciprocal", rt_run_unary, &rt_reciprocal, "T:T", RT_FLOATS, "")
OP("sin", rt_run_unary, &rt_sin, "T:T", RT_FLOATS, "")
OP("cos", rt_run_unary, &rt_cos, "T:T", RT_FLOATS, "")
OP("tan", rt_run_unary, &rt_tan, "T:T", RT_FLOATS, "")
OP("asin", rt_run_unary, &rt_asin, "T:T", RT_FLOATS, "")
OP("acos", rt_run_unary, &rt_acos, "T:T", RT_FLOATS, "")
OP("atan", rt_run_unary, &rt_atan, "T:T", RT_FLOATS, "")
OP("sinh", rt_run_unary, &rt_sinh, "T:T", RT_FLOATS, "")
OP("cosh", rt_run_unary, &rt_cosh, "T:T", RT_FLOATS, "")
OP("asinh", rt_run_unary, &rt_asinh, "T:T", RT_FLOATS, "")
OP("acosh", rt_run_unary, &rt_acosh, "T:T", RT_FLOATS, "")
OP("atanh", rt_run_unary, &rt_atanh, "T:T", RT_FLOATS, "")
OP("sign", rt_run_unary, &rt_sign, "T:T", RT_NUMBERS, "")
OP("bitwise_not", rt_run_unary, &rt_bitwise_not, "T:T", RT_INTEGERS, "")
OP("bitwise_and", rt_run_binary, &rt_bitwise_and, "TT:T", RT_INTEGERS, "")
OP("bitwise_or", rt_run_binary, &rt_bitwise_or, "TT:T", RT_INTEGERS, "")
OP("bitwise_xor", rt_run_binary, &rt_bitwise_xor, "TT:T", RT_INTEGERS, "")
OP("left_shift", rt_run_binary, &rt_left_shift, "TT:T", RT_INTEGERS, "")
OP("right_shift", rt_run_binary, &rt_right_shift, "TT:T", RT_INTEGERS, "")
OP("not_equal", rt_run_binary, &rt_not_equal, "TT:b", RT_ALL, "")
OP("logical_xor", rt_run_binary, &rt_logical_xor, "bb:b", RT_BOOLS, "")
OP("mod", rt_run_modulo, NULL, "TT:T", RT_NUMBERS, "fmod:bool=false")
OP("isnan", rt_run_unary, &rt_isnan, "T:b", RT_FLOATS, "")
OP("isinf", rt_run_isinf, NULL, "T:b", RT_FLOATS, "detect_negative:bool=true detect_positive:bool=true")
OP("nn.relu", rt_run_unary, &rt_relu, "T:T", RT_NUMBERS, "")
OP("nn.leaky_relu", rt_run_leaky_relu, NULL, "T:T", RT_FLOATS, "alpha:float=0.01")
OP("nn.gelu", rt_run_gelu, NULL, "T:T", RT_FLOATS, "approximate:none|tanh=none")
OP("nn.softplus", rt_run_activation, &rt_softplus, "T:T", RT_FLOATS, "")
OP("nn.softsign", rt_run_activation, &rt_softsign, "T:T", RT_FLOATS, "")
OP("nn.elu", rt_run_activation, &rt_elu, "T:T", RT_FLOATS, "alpha:float=1")
OP("nn.selu", rt_run_activation, &rt_selu, "T:T", RT_FLOATS,
   "alpha:float=1.6732632423543772 gamma:float=1.0507009873554805")
OP("nn.celu", rt_run_activation, &rt_celu, "T:T", RT_FLOATS, "alpha:float=1")
OP("nn.hard_sigmoid", rt_run_activation, &rt_hard_sigmoid, "T:T", RT_FLOATS, "alpha:float=0.2 beta:float=0.5")
OP("nn.hard_swish", rt_run_activation, &rt_hard_swish, "T:T", RT_FLOATS, "")
OP("nn.swish", rt_run_activation, &rt_swish, "T:T", RT_FLOATS, "alpha:float=1")
OP("nn.mish", rt_run_activation, &rt_mish, "T:T", RT_FLOATS, "")
OP("nn.thresholded_relu", rt_run_activation, &rt_thresholded_relu, "T:T", RT_FLOATS, "alpha:float=1")
OP("nn.shrink", rt_run_activation, &rt_shrink, "T:T", RT_FLOATS, "lambd:float=0.5 bias:float=0")
OP("nn.prelu", rt_run_binary, &rt_prelu, "TT:T", RT_NUMBERS, "")
OP("matmul", rt_run_matmul, NULL, "TT:T", RT_NUMBERS, "")
OP("nn.dense", rt_run_dense, NULL, "TT:T", RT_NUMBERS, "")
OP("nn.bias_add", rt_run_bias_add, NULL, "TT:T", RT_NUMBERS, "axis:int=-1")
OP("nn.conv1d", rt_run_conv, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCW|NWC=NCW "
   "kernel_layout:OIW|IOW|WIO=OIW")
OP("nn.conv2d", rt_run_conv, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCHW|NHWC=NCHW "
   "kernel_layout:OIHW|IOHW|HWIO=OIHW")
OP("nn.conv3d", rt_run_conv, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCDHW|NDHWC=NCDHW "
   "kernel_layout:OIDHW|IODHW|DHWIO=OIDHW")
OP("nn.conv1d_transpose", rt_run_conv_transpose, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCW|NWC=NCW output_padding:ints=0 "
   "kernel_layout:IOW|OIW|WIO=IOW")
OP("nn.conv2d_transpose", rt_run_conv_transpose, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCHW|NHWC=NCHW "
   "output_padding:ints=0 kernel_layout:IOHW|OIHW|HWIO=IOHW")
OP("nn.conv3d_transpose", rt_run_conv_transpose, NULL, "TT:T", RT_NUMBERS,
   "strides:ints=1 padding:ints=0 dilation:ints=1 groups:int=1 data_layout:NCDHW|NDHWC=NCDHW "
   "output_padding:ints=0 kernel_layout:IODHW|OIDHW|DHWIO=IODHW")
OP("nn.max_pool1d", rt_run_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false layout:NCW|NWC=NCW")
OP("nn.max_pool2d", rt_run_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false layout:NCHW|NHWC=NCHW")
OP("nn.max_pool3d", rt_run_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false layout:NCDHW|NDHWC=NCDHW")
OP("nn.avg_pool1d", rt_run_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false "
   "count_include_pad:bool=false layout:NCW|NWC=NCW")
OP("nn.avg_pool2d", rt_run_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false "
   "count_include_pad:bool=false layout:NCHW|NHWC=NCHW")
OP("nn.avg_pool3d", rt_run_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false "
   "count_include_pad:bool=false layout:NCDHW|NDHWC=NCDHW")
OP("nn.lp_pool1d", rt_run_pool, &rt_lp_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false p:int=2 "
   "layout:NCW|NWC=NCW")
OP("nn.lp_pool2d", rt_run_pool, &rt_lp_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false p:int=2 "
   "layout:NCHW|NHWC=NCHW")
OP("nn.lp_pool3d", rt_run_pool, &rt_lp_pool, "T:T", RT_FLOATS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false p:int=2 "
   "layout:NCDHW|NDHWC=NCDHW")
OP("nn.adaptive_max_pool1d", rt_run_adaptive_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "output_size:ints layout:NCW|NWC=NCW")
OP("nn.adaptive_max_pool2d", rt_run_adaptive_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "output_size:ints layout:NCHW|NHWC=NCHW")
OP("nn.adaptive_max_pool3d", rt_run_adaptive_pool, &rt_max_pool, "T:T", RT_NUMBERS,
   "output_size:ints layout:NCDHW|NDHWC=NCDHW")
OP("nn.adaptive_avg_pool1d", rt_run_adaptive_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "output_size:ints layout:NCW|NWC=NCW")
OP("nn.adaptive_avg_pool2d", rt_run_adaptive_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "output_size:ints layout:NCHW|NHWC=NCHW")
OP("nn.adaptive_avg_pool3d", rt_run_adaptive_pool, &rt_avg_pool, "T:T", RT_FLOATS,
   "output_size:ints layout:NCDHW|NDHWC=NCDHW")
OP("nn.argmax_pool1d", rt_run_argmax_pool, NULL, "T:l", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false column_major:bool=false")
OP("nn.argmax_pool2d", rt_run_argmax_pool, NULL, "T:l", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false column_major:bool=false")
OP("nn.argmax_pool3d", rt_run_argmax_pool, NULL, "T:l", RT_NUMBERS,
   "pool_size:ints strides:ints? padding:ints=0 dilation:ints=1 ceil_mode:bool=false column_major:bool=false")
OP("squeeze", rt_run_squeeze, NULL, "T:T", RT_ANY, "axis:ints?")
OP("expand_dims", rt_run_expand_dims, NULL, "T:T", RT_ANY, "axis:ints")
OP("nn.batch_norm", rt_run_batch_norm, NULL, "TTTTT:T", RT_FLOATS, "axis:int=1 epsilon:float=1e-5")
OP("nn.layer_norm", rt_run_layer_norm, NULL, "TTT:T", RT_FLOATS, "axes:ints=-1 epsilon:float=1e-5")
OP("nn.rms_norm", rt_run_layer_norm, "", "TT:T", RT_FLOATS, "axes:ints=-1 epsilon:float=1e-5")
OP("nn.group_norm", rt_run_group_norm, NULL, "TTT:T", RT_FLOATS, "groups:int epsilon:float=1e-5")
OP("nn.instance_norm", rt_run_group_norm, "", "TTT:T", RT_FLOATS, "epsilon:float=1e-5")
OP("nn.lrn", rt_run_lrn, NULL, "T:T", RT_FLOATS, "size:int alpha:float=1e-4 beta:float=0.75 bias:float=1 axis:int=1")
OP("nn.log_softmax", rt_run_softmax, "", "T:T", RT_FLOATS, "axis:int=-1")
OP("nn.softmax", rt_run_softmax, NULL, "T:T", RT_FLOATS, "axis:int=-1")
OP("nn.stepwise_softmax", rt_run_stepwise_softmax, NULL, "T:T", RT_FLOATS, "axis:int=-1 zero_unseen:bool=false")
OP("reshape", rt_run_reshape, NULL, "T:T", RT_ANY, "shape:dims")
OP("permute_dims", rt_run_permute_dims, NULL, "T:T", RT_ANY, "axes:ints?")
OP("broadcast_to", rt_run_broadcast_to, NULL, "T:T", RT_ANY, "shape:dims")
OP("concat", rt_run_concat, NULL, "T*:T", RT_ANY, "axis:int=0")
OP("split", rt_run_split, NULL, "T:T*", RT_ANY, "sections:dims axis:int=0")
OP("take", rt_run_take, NULL, "Ti:T", RT_ANY, "axis:int=0 mode:fast|clip=fast")
OP("strided_slice", rt_run_strided_slice, NULL, "T:T", RT_ANY,
   "axes:ints begin:dims end:dims strides:ints mode:clip|strict=clip")
OP("nn.pad", rt_run_pad, NULL, "T:T", RT_ALL, "pad_width:ints pad_value:float=0")
OP("nn.border_pad", rt_run_border_pad, NULL, "T:T", RT_ANY, "pad_width:ints mode:edge|reflect|wrap")
OP("tile", rt_run_tile, NULL, "T:T", RT_ANY, "repeats:dims")
OP("flip", rt_run_flip, NULL, "T:T", RT_ANY, "axis:int")
OP("roll", rt_run_roll, NULL, "T:T", RT_ANY, "shift:ints axis:ints")
OP("stack", rt_run_stack, NULL, "T*:T", RT_ANY, "axis:int=0")
OP("reverse_sequence", rt_run_reverse_sequence, NULL, "Ti:T", RT_ANY, "batch_axis:int=0 seq_axis:int=1")
OP("gather_elements", rt_run_gather_elements, NULL, "Ti:T", RT_ANY, "axis:int=0")
OP("gather_nd", rt_run_gather_nd, NULL, "Ti:T", RT_ANY, "batch_dims:int=0")
OP("one_hot", rt_run_one_hot, NULL, "iTT:T", RT_ANY, "depth:dim axis:int=-1")
OP("scatter_elements", rt_run_scatter_elements, NULL, "TiT:T", RT_ANY,
   "axis:int=0 reduction:update|add|mul|min|max=update")
OP("scatter_nd", rt_run_scatter_nd, NULL, "TiT:T", RT_ANY, "reduction:update|add|mul|min|max=update")
OP("scatter_slice", rt_run_scatter_slice, NULL, "TTi:T", RT_ANY, "axis:int mode:linear|circular=linear")
OP("arange", rt_run_arange, NULL, ":@", RT_NUMBERS, "stop:dim start:dim=0 step:dim=1 dtype:dtype=int64")
OP("full", rt_run_full, NULL, "T:T", RT_ANY, "shape:dims")
OP("shape_of", rt_run_shape_of, NULL, "?:l", RT_ANY, "")
OP("size", rt_run_size, NULL, "?:l", RT_ANY, "")
OP("shape_to_tensor", rt_run_shape_to_tensor, NULL, ":l", RT_ANY, "sizes:dims")
OP("sum", rt_run_reduction, &rt_sum, "T:T", RT_NUMBERS, "axis:ints? keepdims:bool=false")
OP("mean", rt_run_reduction, &rt_mean, "T:T", RT_FLOATS, "axis:ints? keepdims:bool=false")
OP("max", rt_run_reduction, &rt_max, "T:T", RT_NUMBERS, "axis:ints? keepdims:bool=false")
OP("min", rt_run_reduction, &rt_min, "T:T", RT_NUMBERS, "axis:ints? keepdims:bool=false")
OP("prod", rt_run_reduction, &rt_product_of, "T:T", RT_NUMBERS, "axis:ints? keepdims:bool=false")
OP("all", rt_run_reduction, &rt_all, "b:b", RT_BOOLS, "axis:ints? keepdims:bool=false")
OP("any", rt_run_reduction, &rt_any, "b:b", RT_BOOLS, "axis:ints? keepdims:bool=false")
OP("logsumexp", rt_run_reduction, &rt_logsumexp, "T:T", RT_FLOATS, "axis:ints? keepdims:bool=false")
OP("argmin", rt_run_extreme_index, "", "T:l", RT_NUMBERS, "axis:int keepdims:bool=false select_last_index:bool=false")
OP("argmax", rt_run_extreme_index, NULL, "T:l", RT_NUMBERS, "axis:int keepdims:bool=false select_last_index:bool=false")
OP("nn.resize", rt_run_resize, NULL, "T:T", RT_ALL,
   "axes:ints sizes:dims scales:floats? method:nearest|linear|cubic=nearest "
   "coordinates:half_pixel|half_pixel_symmetric|half_pixel_or_first|half_pixel_for_nearest|align_corners|asymmetric"
   "=half_pixel "
   "rounding:half_down|half_up|floor|ceil=half_down cubic_coefficient:float=-0.75 exclude_outside:bool=false")
OP("nn.antialias_resize", rt_run_antialias_resize, NULL, "T:T", RT_FLOATS,
   "axes:ints sizes:dims scales:floats? method:linear|cubic=linear "
   "coordinates:half_pixel|half_pixel_symmetric|half_pixel_or_first|half_pixel_for_nearest|align_corners|asymmetric"
   "=half_pixel "
   "cubic_coefficient:float=-0.75 exclude_outside:bool=false")
OP("nn.rnn", rt_run_rnn, NULL, "TTTTTs*:TT", RT_FLOATS,
   "direction:forward|reverse|bidirectional=forward activation:tanh|relu=tanh")
OP("nn.gru", rt_run_gru, NULL, "TTTTTs*:TT", RT_FLOATS,
   "direction:forward|reverse|bidirectional=forward linear_before_reset:bool=false")
OP("nn.lstm", rt_run_lstm, NULL, "TTTTTTs*:TTT", RT_FLOATS, "direction:forward|reverse|bidirectional=forward")
OP("einsum", rt_run_einsum, NULL, "T*:T", RT_NUMBERS, "equation:text")
OP("quantize", rt_run_quantize, NULL, "TTq:q", RT_FLOATS, "axis:int=1 block_size:int=0")
OP("dequantize", rt_run_dequantize, NULL, "qTq:T", RT_FLOATS, "axis:int=1 block_size:int=0")
OP("nn.attention", rt_run_attention, NULL, "TTTT*:T*", RT_FLOATS,
   "scale:float? softcap:float=0 causal:bool=false offset:dim=0 zero_unseen:bool=false "
   "scores:products|capped|masked|weights?")
OP("nn.rotary_embedding", rt_run_rotary_embedding, NULL, "TTT:T", RT_FLOATS, "interleaved:bool=false")
OP("topk", rt_run_topk, NULL, "T:Tl", RT_NUMBERS, "k:dim axis:int=-1 largest:bool=true sorted:bool=true")
OP("sort", rt_run_sort, NULL, "T:T", RT_NUMBERS, "axis:int=-1 descending:bool=false")
OP("argsort", rt_run_argsort, NULL, "T:l", RT_NUMBERS, "axis:int=-1 descending:bool=false")
OP("cumsum", rt_run_cumulative, NULL, "T:T", RT_NUMBERS, "axis:int exclusive:bool=false reverse:bool=false")
OP("cumprod", rt_run_cumulative, "", "T:T", RT_NUMBERS, "axis:int exclusive:bool=false reverse:bool=false")
OP("trilu", rt_run_trilu, NULL, "T:T", RT_ANY, "k:dim=0 upper:bool=true")
OP("depth_to_space", rt_run_depth_to_space, NULL, "T:T", RT_ANY, "block_size:int mode:DCR|CRD=DCR")
OP("space_to_depth", rt_run_space_to_depth, NULL, "T:T", RT_ANY, "block_size:int mode:DCR|CRD=DCR")
OP("nonzero", rt_run_nonzero, NULL, "T:l", RT_ALL, "")
OP("compress", rt_run_compress, NULL, "Tb:T", RT_ANY, "axis:int?")
OP("unique", rt_run_unique, NULL, "T:Tlll", RT_ALL, "axis:int? sorted:bool=true")
OP("range", rt_run_range, NULL, "TTT:T", RT_NUMBERS, "")
OP("as_size", rt_run_as_size, NULL, "i:b", RT_ANY, "")
OP("ragged_take", rt_run_ragged_take, NULL, "Tss:T", RT_ANY, "")
OP("strings.key_index", rt_run_string_key_index, NULL, "TsTs:l", RT_SET(RT_T_U8), "")
OP("as_dynamic", rt_run_as_dynamic, NULL, "?*:=*", RT_ANY, "axes:ints")
OP("nn.non_max_suppression", rt_run_non_max_suppression, NULL, "TTsTT:l", RT_FLOATS, "center_point_box:bool=false")
OP("dft", rt_run_dft, NULL, "T:T", RT_FLOATS, "axis:int=-2 length:dim? inverse:bool=false onesided:bool=false")
OP("det", rt_run_det, NULL, "T:T", RT_FLOATS, "")
OP("random.seed", rt_run_random_seed, NULL, ":l", RT_ANY, "")
OP("random.uniform", rt_run_random_uniform, NULL, "i:@", RT_RANDOM_FLOATS,
   "shape:dims low:float=0 high:float=1 dtype:dtype=float32")
OP("random.normal", rt_run_random_normal, NULL, "i:@", RT_RANDOM_FLOATS,
   "shape:dims mean:float=0 scale:float=1 dtype:dtype=float32")
OP("nn.grid_sample", rt_run_grid_sample, NULL, "Tf:T", RT_ALL,
   "method:nearest|linear|cubic=linear border:zeros|border|reflection=zeros align_corners:bool=false")
OP("nn.roi_align", rt_run_roi_align, NULL, "Tfi:T", RT_FLOATS,
   "size:ints samples:int=0 scale:float=1 method:avg|max=avg half_pixel:bool=true")
OP("nn.roi_max_pool", rt_run_roi_max_pool, NULL, "Tfi:T", RT_FLOATS, "size:ints scale:float=1")
OP("nn.col2im", rt_run_col2im, NULL, "T:T", RT_NUMBERS, "image_size:dims strides:ints? dilation:ints? padding:ints?")
OP("nn.deformable_im2col", rt_run_deformable_im2col, NULL, "Tf:T", RT_FLOATS,
   "window:ints strides:ints? dilation:ints? padding:ints?")
