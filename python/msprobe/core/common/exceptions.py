"""The exceptions of the public interface, under the names and in the module where users of the tool look for them."""


class _CodedException(Exception):
    """An exception with a number; its text is the number's prefix and what was wrong."""

    PREFIXES = {}

    def __init__(self, code, error_info=""):
        self.code = code
        self.error_info = self.PREFIXES.get(code, "") + error_info
        super().__init__(self.error_info)

    def __str__(self):
        return self.error_info


class MsprobeException(_CodedException):
    """What the user asked for cannot be done; the text says what is wrong and what is allowed."""

    INVALID_PARAM_ERROR = 0
    OVERFLOW_NUMS_ERROR = 1
    RECURSION_LIMIT_ERROR = 2
    INTERFACE_USAGE_ERROR = 3
    UNSUPPORTED_TYPE_ERROR = 4
    PREFIXES = {
        0: "[msprobe] Invalid parameter: ",
        1: "[msprobe] Too many overflows: ",
        2: "[msprobe] Recursion limit exceeded: ",
        3: "[msprobe] Invalid interface usage: ",
        4: "[msprobe] Unsupported type: ",
    }


class FileCheckException(_CodedException):
    """A file or folder that cannot be used."""

    INVALID_FILE_ERROR = 0
    FILE_PERMISSION_ERROR = 1
    SOFT_LINK_ERROR = 2
    ILLEGAL_PATH_ERROR = 3
    ILLEGAL_PARAM_ERROR = 4
    FILE_TOO_LARGE_ERROR = 5
    PREFIXES = {
        0: "[msprobe] Invalid file: ",
        1: "[msprobe] File permission error: ",
        2: "[msprobe] Soft link detected: ",
        3: "[msprobe] Invalid file path: ",
        4: "[msprobe] Invalid open mode: ",
        5: "[msprobe] File too large: ",
    }


class ScopeException(_CodedException):
    """A scope or list that selects nothing sensible."""

    INVALID_API_LIST = 0
    INVALID_SCOPE = 1
    ARGS_CONFLICT = 2
    PREFIXES = {
        0: "[msprobe] Invalid api_list: ",
        1: "[msprobe] Invalid scope: ",
        2: "[msprobe] Scope and api_list conflict: ",
    }
