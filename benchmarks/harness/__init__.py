# SPDX-License-Identifier: Apache-2.0
"""What the benchmark commands share: contenders, interleaved rounds, targets, reports."""
