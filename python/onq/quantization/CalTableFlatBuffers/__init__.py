"""TensorRT's calibration table as a flatbuffer: table TrtTable { dict: [KeyValue]; }, table KeyValue { key, value: string; }"""
